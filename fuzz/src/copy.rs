//! Frames of `fullpipe copy`, as an unauthenticated or a malicious peer may send them.

use fullpipe::relay::frame::{HASH, HEADER, Header, MOST_JSON, Reply, Request, decode, encode};

/// Reads a header, and the rest as a message of either end.
///
/// # Panics
/// Panics if an accepted header or message differs after it is written and read again, or exceeds a limit.
pub fn frames(data: &[u8]) {
    let Some((header, content)) = data.split_first_chunk::<HEADER>() else { return };
    if let Ok(accepted) = Header::parse(header) {
        assert_eq!(accepted.encode(), *header);
        let length = match accepted {
            Header::Control { length } => length,
            Header::Data(data) => data.length.max(data.carried()),
            Header::Whole { length, .. } => length - HASH + 1,
        };
        assert!((1..=(1 << 20) + 1).contains(&length), "{accepted:?}");
    }
    // A message whose paths need escapes may become longer than the limit, and is then not written.
    if let Ok(request) = decode::<Request>(content)
        && let Ok(frame) = encode(&request)
    {
        assert_eq!(decode(text(&frame)), Ok(request));
    }
    if let Ok(reply) = decode::<Reply>(content)
        && let Ok(frame) = encode(&reply)
    {
        assert_eq!(decode(text(&frame)), Ok(reply));
    }
}

/// Returns the text of a message, whose header has to be valid.
fn text(frame: &[u8]) -> &[u8] {
    let (header, text) = frame.split_first_chunk::<HEADER>().expect("a header");
    assert_eq!(Header::parse(header), Ok(Header::Control { length: text.len() }));
    assert!(text.len() <= MOST_JSON);
    text
}
