//! Does: an S3 endpoint before an S3 store.
//!
//! A request is either answered from the cache or passed on as it came, signature included; nothing in between is
//! decoded and encoded anew. A gateway that did so through a typed S3 library failed 38 of 328 conformance tests; one
//! that passes on what it does not understand fails none.
//!
//! Follow a request: [`gateway`] takes it, [`serving`] plans it with what `forebay-objects` decides, [`backend`] carries it to the store,
//! [`reading`] does for objects; [`hit`] is a body from the cache, [`fetch`] gets what that lacks, [`passing`] is one from the store, which [`keep`] keeps on its way,
//! [`through`] an upload that is; [`events`] is told of changes past it;
//! [`flight`] lets others have it; [`pool`] is the way to the shard that has the bytes. [`counts`] counts, and [`operator`] answers who runs it.
//! [`device`] is the store as the shard sees it, by addresses, and [`by_address`] reads it.
//! [`trust`] says whether a store over TLS is the one that was meant. [`verify`] says who may, where the store does not; [`outgoing`] is a client's body on its way.
//! Why it is built so: docs/design/gateway.md.
#![forbid(unsafe_code)]

mod backend;
mod body;
mod by_address;
mod cached;
mod counts;
mod device;
mod events;
mod failure;
mod fetch;
mod flight;
mod gateway;
mod hit;
mod keep;
mod multipart;
mod on_the_way;
mod operator;
mod outgoing;
mod pace;
mod passing;
mod pool;
mod reading;
mod serving;
mod small;
mod through;
mod trust;
mod verify;

pub use backend::{BackEnd, BackEndError, check_address};
pub use cached::CacheConfig;
pub use counts::{ADDRESSED, CLASSES, Counted, DurationCounts, OPERATIONS, OUTCOMES, PURPOSES, SOURCES};
pub use device::{StoreDevice, StoreReads};
pub use gateway::{Gateway, GatewayConfig, GatewayError};
pub use operator::{Extent, Figures, Forgotten, Found, Located, Operator, Place, VERSIONS_MAX};
pub use pool::{Lease, Page, Pool, PoolFront};
pub use trust::{Authorities, Doubt, TrustError};
pub use verify::VerifyConfig;
