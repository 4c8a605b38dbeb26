//! Bodies of requests in pieces: the conversation so far is sent from where it is kept, without a copy.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A piece of fewer bytes is copied: to send it by itself would cost more.
const LEAST_PIECE: usize = 16 << 10;

/// Bytes that only grow, and are sent again and again.
///
/// They are kept in few pieces, each at least twice as long as the one behind it: each byte is copied a few times
/// (the logarithm of the number of additions) in all, and not once per request.
#[derive(Default)]
pub(crate) struct Growing {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Growing {
    pub(crate) fn push(&mut self, mut bytes: Vec<u8>) {
        self.length += bytes.len();
        while let Some(before) = self.pieces.pop_if(|before| before.len() < 2 * bytes.len()) {
            let mut both = Vec::with_capacity(before.len() + bytes.len());
            both.extend_from_slice(&before);
            both.extend_from_slice(&bytes);
            bytes = both;
        }
        self.pieces.push(bytes.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// The body of a request, as it is made.
#[derive(Default)]
pub(crate) struct BodyWriter {
    pieces: Vec<Bytes>,
    last: Vec<u8>,
}

impl BodyWriter {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::behind(Vec::with_capacity(capacity))
    }

    /// A body that begins with this.
    pub(crate) fn behind(beginning: Vec<u8>) -> Self {
        Self { pieces: Vec::new(), last: beginning }
    }

    /// Where what comes next is written.
    pub(crate) fn json(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    pub(crate) fn append(&mut self, growing: &Growing) {
        for piece in &growing.pieces {
            if piece.len() < LEAST_PIECE {
                self.last.extend_from_slice(piece);
            } else {
                self.pieces.push(std::mem::take(&mut self.last).into());
                self.pieces.push(piece.clone());
            }
        }
    }

    pub(crate) fn finish(mut self) -> RequestBody {
        self.pieces.push(self.last.into());
        RequestBody(self.pieces)
    }
}

/// The body of a request. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody(Vec<Bytes>);

impl RequestBody {
    pub(crate) fn to_body(&self) -> reqwest::Body {
        match &*self.0 {
            [only] => only.clone().into(),
            pieces => {
                let length = pieces.iter().map(Bytes::len).sum::<usize>();
                let pieces = VecDeque::from(pieces.to_vec());
                reqwest::Body::wrap(Pieces { pieces, left: length as u64 })
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// Pieces on their way. As their length is known, they are sent as one body of that length.
struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let next = this.pieces.pop_front();
        this.left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pieces_hold_what_was_added() {
        let mut growing = Growing::default();
        assert!(growing.is_empty());
        let mut all = Vec::new();
        for number in 0..1000_usize {
            let added = vec![(number % 251) as u8; 1 + number * 7 % 300];
            all.extend_from_slice(&added);
            growing.push(added);
            assert!(growing.pieces.len() <= 17, "{}", growing.pieces.len());
        }
        assert_eq!(growing.pieces.concat(), all);
        assert_eq!(growing.length, all.len());
    }

    #[test]
    fn a_body_copies_what_is_short_and_sends_the_rest_as_it_is() {
        for lengths in [vec![10], vec![LEAST_PIECE], vec![40 * LEAST_PIECE, LEAST_PIECE, 100, 10], vec![]] {
            let mut growing = Growing::default();
            for length in &lengths {
                growing.push(vec![b'm'; *length]);
            }
            let mut writer = BodyWriter::default();
            writer.json().extend_from_slice(b"head");
            writer.append(&growing);
            writer.json().extend_from_slice(b"tail");
            let body = writer.finish();
            let middle = "m".repeat(lengths.iter().sum());
            assert_eq!(body.to_vec(), format!("head{middle}tail").as_bytes());
            let shared = body.0.iter().filter(|piece| {
                growing.pieces.iter().any(|kept| kept.as_ptr() == piece.as_ptr() && kept.len() == piece.len())
            });
            assert_eq!(shared.count(), lengths.iter().filter(|length| **length >= LEAST_PIECE).count());
        }
    }
}
