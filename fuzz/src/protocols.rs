//! Fuzz targets for bytes that arrive without a person's doing: iperf3's protocol, requests to the exporter,
//! answers of the kernel, and the journal of `tune`.

use fullpipe::iperf3::datagram::{Header, answer, is_answer};
use fullpipe::iperf3::frame::{PARAMS_MOST, RESULTS_MOST, Reader};
use fullpipe::iperf3::{Cookie, Params, Refusal, Results, State, streams};

/// Reads messages of an iperf3 peer. The first byte chooses the message.
pub fn iperf3(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 4 {
        0 => params(rest),
        1 => results(rest),
        2 => {
            if let Some(Ok(cookie)) = rest.first_chunk().map(Cookie::from_wire) {
                assert_eq!(rest.first_chunk(), Some(&cookie.to_wire()));
                assert!(!cookie.to_string().contains(char::is_control));
            }
            for &byte in rest {
                if let Ok(state) = State::from_byte(byte) {
                    assert_eq!(state.byte(), byte);
                }
            }
            if let Some(wire) = rest.first_chunk() {
                let refusal = Refusal::from_wire(*wire);
                assert!(!refusal.to_string().is_empty());
            }
        }
        _ => {
            assert!(answer(rest).is_none() || !is_answer(rest), "a hello is no answer");
            for wide in [false, true] {
                let Some(header) = Header::read(wide, rest) else { continue };
                let mut written = [0; 16];
                header.write(wide, &mut written);
                let again = Header::read(wide, &written).expect("a whole header");
                assert_eq!(again.number, header.number);
            }
        }
    }
}

/// Reads a frame in pieces, as it arrives from a socket.
fn frame(bytes: &[u8], most: usize) -> Option<serde_json::Value> {
    let mut reader = Reader::new(most);
    let mut rest = bytes;
    loop {
        let missing = reader.missing().ok()?;
        if missing == 0 {
            return reader.value().ok();
        }
        let piece = rest.get(..missing.min(1_000).min(rest.len())).filter(|piece| !piece.is_empty())?;
        reader.push(piece);
        rest = &rest[piece.len()..];
    }
}

fn params(bytes: &[u8]) {
    let Some(value) = frame(bytes, PARAMS_MOST) else { return };
    let Ok(params) = Params::from_json(&value) else { return };
    assert!(streams::of(&params).len() <= 256, "{} streams", params.streams());
    // Credentials are only recorded as present.
    let kept = Params { authenticates: false, ..params };
    assert_eq!(Params::from_json(&kept.to_json()), Ok(kept));
}

fn results(bytes: &[u8]) {
    let Some(value) = frame(bytes, RESULTS_MOST) else { return };
    let Ok(results) = Results::from_json(&value) else { return };
    drop(results.of_streams([1, 3]));
    let again = Results::from_json(&results.to_json()).expect("what was written is read");
    assert_eq!(again.streams.len(), results.streams.len());
}

/// Reads the head of a request to the exporter.
pub fn http(data: &[u8]) {
    fullpipe::exporter::read_request(data);
}

/// Reads an answer of the kernel: about sockets if the first byte is even, otherwise about routes.
pub fn netlink(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    if kind % 2 == 0 {
        fullpipe::linux::foreign::sockets(rest);
    } else {
        fullpipe::linux::foreign::routes(rest);
    }
}

/// Reads a journal of `tune`.
pub fn journal(data: &[u8]) {
    let (changes, damaged) = fullpipe::linux::foreign::journal(data);
    assert!(damaged || std::str::from_utf8(data).is_ok());
    assert!(changes <= data.len());
}
