//! One step of the library's state machine, and what to do in each of its states.

use rustls::Error;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::buffer::{Buffer, Placing};
use super::{OVERHEAD, RECORD};

/// How far one step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more to do.
    Again,
    /// The handshake needs more bytes.
    Blocked,
    /// Nothing that has come is left to be looked at, and the wish is granted.
    Idle,
    /// The peer has ended its direction.
    Ended,
}

/// What is to be done as soon as it may be.
pub(super) enum Wish<'a> {
    Nothing,
    Seal(&'a [u8]),
    Goodbye,
}

/// Does what the state asks for. How many bytes of what has come are done with, and how far it went.
pub(super) fn settle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wish: &Wish<'_>,
    placing: &mut Placing<'_, '_>,
    (plain, outgoing): (&mut Buffer, &mut Buffer),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus {
        mut discard, state, ..
    } = status;
    let step = state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                let placed = placing.place(record.payload);
                plain.push(record.payload.get(placed..).unwrap_or_default());
            }
            Ok(Step::Again)
        }
        ConnectionState::EncodeTlsData(message) => encode(message, outgoing),
        ConnectionState::TransmitTlsData(transmit) => {
            // It is in `outgoing`, before everything that is encrypted later.
            transmit.done();
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(traffic) => grant(wish, traffic, outgoing),
        ConnectionState::BlockedHandshake => Ok(Step::Blocked),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Step::Ended),
        // Early data is not offered, and a state of a later library can't be gone on with.
        _ => Err(Error::General("an unexpected state".to_owned())),
    });
    (discard, step)
}

fn encode<Data>(
    mut message: EncodeTlsData<'_, Data>,
    outgoing: &mut Buffer,
) -> Result<Step, Error> {
    let mut room = RECORD;
    loop {
        match message.encode(outgoing.room_for(room)) {
            Ok(count) => {
                outgoing.added(count);
                return Ok(Step::Again);
            }
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => return Ok(Step::Again),
        }
    }
}

fn grant<Data>(
    wish: &Wish<'_>,
    mut traffic: WriteTraffic<'_, Data>,
    outgoing: &mut Buffer,
) -> Result<Step, Error> {
    let text: &[u8] = match wish {
        Wish::Nothing => return Ok(Step::Idle),
        Wish::Seal(text) => text,
        Wish::Goodbye => &[],
    };
    let mut room = text.len() + (text.len() / RECORD + 1) * OVERHEAD;
    loop {
        let place = outgoing.room_for(room);
        let sealed = match wish {
            Wish::Goodbye => traffic.queue_close_notify(place),
            _ => traffic.encrypt(text, place),
        };
        match sealed {
            Ok(count) => {
                outgoing.added(count);
                return Ok(Step::Idle);
            }
            Err(EncryptError::InsufficientSize(size)) => room = size.required_size,
            Err(EncryptError::EncryptExhausted) => return Err(Error::EncryptError),
        }
    }
}
