//! The client against a server of a few lines, written from the protocol's text and not from the client.

use super::*;
use std::thread::JoinHandle;

const SIZE: u64 = 1 << 20;

/// An export and its one fault: a read that begins there fails, or has a wrong byte.
#[derive(Clone, Copy)]
pub(in crate::demo) struct Export {
    pub(in crate::demo) bytes: u64,
    pub(in crate::demo) failing: Option<u64>,
    pub(in crate::demo) wrong: Option<u64>,
}

const EXPORT: Export = Export { bytes: SIZE, failing: Some(SIZE / 2), wrong: None };

/// Serves one connection of a memory export named "demo"; returns what it ended with.
fn serve(mut stream: UnixStream, export: Export) -> io::Result<Vec<u8>> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    assert_eq!(&head[..12], b"IHAVEOPT\x00\x00\x00\x07", "the option is GO");
    let mut data = vec![0; u32::from_be_bytes(head[12..].try_into().expect("four bytes")) as usize];
    stream.read_exact(&mut data)?;
    let option_reply = |kind: u32, data: &[u8]| {
        [
            &0x0003_e889_0455_65a9_u64.to_be_bytes()[..],
            &7u32.to_be_bytes(),
            &kind.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            data,
        ]
        .concat()
    };
    if &data[4..8] != b"demo" {
        stream.write_all(&option_reply((1 << 31) + 6, b"no such export"))?;
        return Ok(Vec::new());
    }
    let info = [&0u16.to_be_bytes()[..], &export.bytes.to_be_bytes(), &0x0005_u16.to_be_bytes()].concat();
    // In small pieces, as a network may.
    for piece in [option_reply(3, &info), option_reply(1, &[])].concat().chunks(7) {
        stream.write_all(piece)?;
    }
    let mut disk = vec![0; export.bytes as usize];
    loop {
        let mut request = [0; 28];
        stream.read_exact(&mut request)?;
        assert_eq!(&request[..4], &0x2560_9513_u32.to_be_bytes());
        let position = u64::from_be_bytes(request[16..24].try_into().expect("eight bytes"));
        let offset = position as usize;
        let length = u32::from_be_bytes(request[24..].try_into().expect("four bytes")) as usize;
        let error: u32 = if request[7] == 0 && export.failing == Some(position) { 5 } else { 0 };
        let reply = [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &request[8..16]].concat();
        match (request[7], error) {
            (0, 0) => {
                let mut data = disk[offset..offset + length].to_vec();
                data[length - 1] ^= u8::from(export.wrong == Some(position));
                stream.write_all(&[reply, data].concat())?;
            }
            (1, _) => {
                stream.read_exact(&mut disk[offset..offset + length])?;
                stream.write_all(&reply)?;
            }
            (2, _) => return Ok(disk),
            _ => stream.write_all(&reply)?,
        }
    }
}

pub(in crate::demo) type Connected = Result<NbdClient<UnixStream>, ClientError>;
pub(in crate::demo) type Server = JoinHandle<io::Result<Vec<u8>>>;

pub(in crate::demo) fn connected(name: &str, export: Export) -> (Connected, Server) {
    let (client, server) = UnixStream::pair().expect("a pair of sockets");
    let server = std::thread::spawn(move || serve(server, export));
    (NbdClient::handshake(client, name), server)
}

#[test]
fn what_is_written_is_read() {
    let (client, server) = connected("demo", EXPORT);
    let mut client = client.expect("the handshake");
    assert_eq!(client.size_bytes(), SIZE);
    client.write(4096, &[7; 512]).expect("a write");
    client.flush().expect("a flush");
    let mut buffer = [1; 1024];
    client.read(4096, &mut buffer).expect("a read");
    assert_eq!((buffer[0], buffer[511], buffer[512]), (7, 7, 0));
    client.disconnect().expect("goodbye");
    let disk = server.join().expect("no panic").expect("no error");
    assert_eq!(disk[4096..4608], [7; 512]);
}

#[test]
fn a_failed_read_is_an_error_and_the_connection_lives() {
    let (client, _server) = connected("demo", EXPORT);
    let mut client = client.expect("the handshake");
    let error = client.read(SIZE / 2, &mut [0; 512]).expect_err("EIO");
    assert_eq!(error.to_string(), "the server answered Io");
    client.read(0, &mut [0; 512]).expect("a read");
}

#[test]
fn an_unknown_export_and_a_stranger_are_told_apart() {
    let (client, _server) = connected("nosuch", EXPORT);
    assert!(client.expect_err("refused").to_string().contains("no such export"));
    let (client, mut server) = UnixStream::pair().expect("a pair of sockets");
    server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("bytes");
    let error = NbdClient::handshake(client, "demo").expect_err("no NBD").to_string();
    assert!(error.contains("this is no NBD server"), "{error}");
}
