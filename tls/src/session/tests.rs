//! Two sessions with a string of bytes between them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;

use rustls::pki_types::ServerName;

use super::*;
use crate::authority::Authority;
use crate::{Credentials, Plane};

const NAME: &str = "spiffe://test/ns/a/lynx/b";

fn pair(server: &Credentials, client: &Credentials) -> (Session, Session) {
    let name = ServerName::try_from("192.0.2.1").unwrap();
    let client = Session::client(client.current().client(Plane::Data), name).unwrap();
    let server = Session::server(server.current().server(Plane::Data)).unwrap();
    (client, server)
}

/// Moves at most `most` bytes from one to the other; how many.
fn carry(from: &mut Session, to: &mut Session, most: usize) -> usize {
    let room = to.room();
    let bytes = from.outgoing();
    let count = bytes.len().min(room.len()).min(most);
    room[..count].copy_from_slice(&bytes[..count]);
    from.sent(count);
    to.received(count);
    count
}

/// Shakes hands, some bytes at a time.
fn shake(client: &mut Session, server: &mut Session, most: usize) -> Result<(), SessionError> {
    loop {
        let client_done = client.shake()?;
        while carry(client, server, most) > 0 {
            server.shake()?;
        }
        let server_done = server.shake()?;
        while carry(server, client, most) > 0 {
            client.shake()?;
        }
        if client_done && server_done {
            return Ok(());
        }
    }
}

fn linked() -> (Session, Session) {
    let authority = Authority::new().unwrap();
    let credentials = authority.credentials(NAME).unwrap();
    let (mut client, mut server) = pair(&credentials, &credentials);
    shake(&mut client, &mut server, 700).unwrap();
    (client, server)
}

#[test]
fn both_ends_know_each_others_names_after_a_handshake_in_pieces() {
    let (client, server) = linked();
    assert_eq!(client.peer().unwrap().to_string(), NAME);
    assert_eq!(server.peer().unwrap(), client.peer().unwrap());
}

#[test]
fn every_byte_comes_out_in_order_however_it_is_cut() {
    let ends = AssertUnwindSafe(RefCell::new(linked()));
    bolero::check!()
        .with_type::<Vec<(u8, u16, u16)>>()
        .with_iterations(200)
        .for_each(|cuts| {
            let (client, server) = &mut *ends.borrow_mut();
            let mut said = VecDeque::new();
            let mut heard = 0_usize;
            for (value, length, read) in cuts {
                let header = vec![*value; usize::from(*value)];
                let payload = vec![*value ^ 0x55; usize::from(*length) * 3];
                let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
                let taken = client.encrypt(&parts).unwrap();
                said.extend(header.iter().chain(&payload).take(taken));
                assert!(client.outgoing().len() <= BATCH + 2 * RECORD);
                carry(client, server, usize::from(*read) + 1);
                let mut into = vec![0; usize::from(*read) / 2 + 1];
                heard += take(server, &mut into, &mut said);
            }
            let mut into = vec![0; 5000];
            while carry(client, server, 9999) > 0 || !said.is_empty() {
                heard += take(server, &mut into, &mut said);
            }
            assert!(said.is_empty(), "{heard} bytes were heard");
        });
}

/// Reads some of what should be next; how much.
fn take(server: &mut Session, into: &mut [u8], said: &mut VecDeque<u8>) -> usize {
    let (one, other) = into.split_at_mut(into.len() / 3);
    let mut parts = [IoSliceMut::new(one), IoSliceMut::new(other)];
    match server.decrypt(&mut parts).unwrap() {
        Decrypted::Bytes(count) => {
            for byte in &into[..count] {
                assert_eq!(said.pop_front(), Some(*byte));
            }
            count
        }
        Decrypted::NeedsMore => 0,
        Decrypted::End => panic!("nobody has ended it"),
    }
}

#[test]
fn nothing_is_encrypted_while_something_waits_to_be_written() {
    let (mut client, _) = linked();
    let much = vec![7; 3 * BATCH];
    let taken = client.encrypt(&[IoSlice::new(&much)]).unwrap();
    assert_eq!(taken, BATCH);
    assert_eq!(client.encrypt(&[IoSlice::new(&much)]).unwrap(), 0);
}

#[test]
fn a_flipped_bit_ends_the_connection_and_the_peer_is_told() {
    let (mut client, mut server) = linked();
    client.encrypt(&[IoSlice::new(&[1; 1000])]).unwrap();
    let count = client.outgoing().len();
    server.room()[..count].copy_from_slice(client.outgoing());
    server.room()[500] ^= 1;
    server.received(count);
    let mut into = [0; 1000];
    let error = server
        .decrypt(&mut [IoSliceMut::new(&mut into)])
        .unwrap_err();
    assert!(error.to_string().starts_with("TLS: "), "{error}");
    let alert = server.outgoing().len();
    assert!(alert > 0);
    // Whatever is tried afterwards comes to the same, and says nothing more.
    server.close();
    for _ in 0..2 {
        let again = server.decrypt(&mut [IoSliceMut::new(&mut into)]);
        assert!(again.is_err());
        assert_eq!(server.outgoing().len(), alert);
    }
}

#[test]
fn a_goodbye_is_the_end_and_no_error() {
    let (mut client, mut server) = linked();
    client.close();
    carry(&mut client, &mut server, usize::MAX);
    let mut into = [0; 10];
    for _ in 0..2 {
        let end = server.decrypt(&mut [IoSliceMut::new(&mut into)]).unwrap();
        assert_eq!(end, Decrypted::End);
    }
}

#[test]
fn noise_is_never_a_handshake_and_never_a_panic() {
    let authority = Authority::new().unwrap();
    let credentials = AssertUnwindSafe(authority.credentials(NAME).unwrap());
    bolero::check!()
        .with_type::<Vec<u8>>()
        .with_iterations(500)
        .for_each(|noise| {
            let (mut client, mut server) = pair(&credentials, &credentials);
            for session in [&mut client, &mut server] {
                let room = session.room();
                let count = noise.len().min(room.len());
                room[..count].copy_from_slice(&noise[..count]);
                session.received(count);
                assert!(!session.shake().unwrap_or(false));
            }
        });
}

#[test]
fn a_handshake_message_without_an_end_is_refused_within_the_buffer() {
    let authority = Authority::new().unwrap();
    let credentials = authority.credentials(NAME).unwrap();
    let (_, mut server) = pair(&credentials, &credentials);
    // Records of a client's hello that says to be sixteen million bytes long.
    let mut refused = false;
    for turn in 0..100 {
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend(if turn == 0 {
            [1, 0xff, 0xff, 0xff]
        } else {
            [0; 4]
        });
        record.resize(5 + 0x4000, 0);
        let room = server.room();
        let count = record.len().min(room.len());
        room[..count].copy_from_slice(&record[..count]);
        server.received(count);
        if server.shake().is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused);
}
