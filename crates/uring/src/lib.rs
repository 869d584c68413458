//! Does: io_uring, and the memory that the kernel reads and writes. The only unsafe code of the project.
