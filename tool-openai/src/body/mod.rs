//! Request bodies. The conversation so far is sent from the cache that holds it, without a copy.

mod fields;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

pub(crate) use self::fields::{FieldWriter, reject_reserved};

/// Shorter chunks are copied, because sending them separately costs more.
const MIN_CHUNK_BYTES: usize = 16 << 10;

/// An append-only buffer whose contents are sent with every request.
///
/// It consists of few chunks, each at least twice as long as the next, so that each byte is copied O(log n) times for n
/// appends instead of once per request.
#[derive(Default)]
pub(crate) struct AppendBuffer {
    chunks: Vec<Bytes>,
    length: usize,
}

impl AppendBuffer {
    pub(crate) fn push(&mut self, mut bytes: Vec<u8>) {
        self.length += bytes.len();
        while let Some(previous) = self.chunks.pop_if(|previous| previous.len() < 2 * bytes.len()) {
            let mut merged = Vec::with_capacity(previous.len() + bytes.len());
            merged.extend_from_slice(&previous);
            merged.extend_from_slice(&bytes);
            bytes = merged;
        }
        self.chunks.push(bytes.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the chunks that a request shares, and the shorter ones behind them that it copies.
    fn shared_and_copied(&self) -> (&[Bytes], &[Bytes]) {
        self.chunks.split_at(self.chunks.partition_point(|chunk| chunk.len() >= MIN_CHUNK_BYTES))
    }

    /// Returns the number of bytes that a request copies.
    fn copied_bytes(&self) -> usize {
        self.shared_and_copied().1.iter().map(Bytes::len).sum()
    }
}

/// Builds a [`RequestBody`].
#[derive(Default)]
pub(crate) struct BodyWriter {
    chunks: Vec<Bytes>,
    last: Vec<u8>,
}

impl BodyWriter {
    /// Creates a writer for a body that starts with these bytes.
    pub(crate) fn starting_with(start: Vec<u8>) -> Self {
        Self { chunks: Vec::new(), last: start }
    }

    /// Returns the buffer that further bytes are written to.
    pub(crate) fn json(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    pub(crate) fn append(&mut self, buffer: &AppendBuffer) {
        let (shared, copied) = buffer.shared_and_copied();
        if !shared.is_empty() {
            self.chunks.push(std::mem::take(&mut self.last).into());
            self.chunks.extend_from_slice(shared);
        }
        self.last.reserve(buffer.copied_bytes());
        for chunk in copied {
            self.last.extend_from_slice(chunk);
        }
    }

    pub(crate) fn finish(mut self) -> RequestBody {
        self.chunks.push(self.last.into());
        RequestBody(self.chunks)
    }
}

/// The body of a request. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody(Vec<Bytes>);

impl RequestBody {
    pub(crate) fn to_body(&self) -> reqwest::Body {
        match &*self.0 {
            [only] => only.clone().into(),
            chunks => {
                let length = chunks.iter().map(Bytes::len).sum::<usize>();
                let chunks = VecDeque::from(chunks.to_vec());
                reqwest::Body::wrap(Chunks { chunks, remaining: length as u64 })
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// A body of several chunks. Its length is known, so it is not sent with chunked encoding.
struct Chunks {
    chunks: VecDeque<Bytes>,
    remaining: u64,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let next = this.chunks.pop_front();
        this.remaining -= next.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_buffer_has_few_chunks() {
        let mut buffer = AppendBuffer::default();
        assert!(buffer.is_empty());
        let mut all = Vec::new();
        for number in 0..1000_usize {
            let bytes = vec![(number % 251) as u8; 1 + number * 7 % 300];
            all.extend_from_slice(&bytes);
            buffer.push(bytes);
            assert!(buffer.chunks.len() <= 17, "{}", buffer.chunks.len());
        }
        assert_eq!(buffer.chunks.concat(), all);
        assert_eq!(buffer.length, all.len());
    }

    #[test]
    fn short_chunks_are_copied_and_long_ones_shared() {
        for lengths in
            [vec![10], vec![MIN_CHUNK_BYTES], vec![40 * MIN_CHUNK_BYTES, MIN_CHUNK_BYTES, 100, 10], vec![]]
        {
            let mut buffer = AppendBuffer::default();
            for length in &lengths {
                buffer.push(vec![b'm'; *length]);
            }
            let mut writer = BodyWriter::default();
            writer.json().extend_from_slice(b"head");
            writer.append(&buffer);
            writer.json().extend_from_slice(b"tail");
            let body = writer.finish();
            let middle = "m".repeat(lengths.iter().sum());
            assert_eq!(body.to_vec(), format!("head{middle}tail").as_bytes());
            let shared = body.0.iter().filter(|chunk| {
                buffer.chunks.iter().any(|chunk_of_buffer| {
                    chunk_of_buffer.as_ptr() == chunk.as_ptr() && chunk_of_buffer.len() == chunk.len()
                })
            });
            assert_eq!(shared.count(), lengths.iter().filter(|length| **length >= MIN_CHUNK_BYTES).count());
        }
    }
}
