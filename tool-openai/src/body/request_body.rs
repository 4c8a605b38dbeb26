//! Request bodies. The conversation so far is sent from the cache that holds it, without a copy of all but its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::Error;

/// Shorter chunks are copied, because sending them separately costs more.
const MIN_CHUNK_BYTES: usize = 16 << 10;

/// An append-only buffer whose contents are sent with every request. Requests share its chunks and copy only its end.
#[derive(Default)]
pub(crate) struct AppendBuffer {
    /// None is shorter than the minimum.
    chunks: Vec<Bytes>,
    pub(super) end: Vec<u8>,
}

impl AppendBuffer {
    /// Appends what `write` writes, or nothing if it fails. It must not change what is there.
    pub(crate) fn append<T>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let length = self.end.len();
        let written = write(&mut self.end).inspect_err(|_| self.end.truncate(length))?;
        if self.end.len() >= MIN_CHUNK_BYTES {
            self.chunks.push(std::mem::take(&mut self.end).into_boxed_slice().into());
        }
        Ok(written)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.end.is_empty()
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
        if !buffer.chunks.is_empty() {
            self.chunks.push(std::mem::take(&mut self.last).into());
            self.chunks.extend_from_slice(&buffer.chunks);
        }
        self.last.extend_from_slice(&buffer.end);
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

    fn appended(lengths: &[usize]) -> AppendBuffer {
        let mut buffer = AppendBuffer::default();
        for length in lengths {
            let write = |json: &mut Vec<u8>| {
                json.resize(json.len() + length, b'm');
                Ok(())
            };
            buffer.append(write).unwrap();
        }
        buffer
    }

    #[test]
    fn long_chunks_are_shared_and_the_end_is_copied() {
        const LONG: usize = MIN_CHUNK_BYTES;
        let table: [(&[usize], usize); 6] = [
            (&[], 0),
            (&[10, 20], 0),
            (&[LONG - 1], 0),
            (&[LONG - 1, 1], 1),
            (&[40 * LONG], 1),
            (&[LONG / 2, LONG, 1, LONG, 100, 10], 2),
        ];
        for (lengths, shared) in table {
            let buffer = appended(lengths);
            assert_eq!(buffer.is_empty(), lengths.is_empty());
            let mut writer = BodyWriter::default();
            writer.json().extend_from_slice(b"head");
            writer.append(&buffer);
            writer.json().extend_from_slice(b"tail");
            let body = writer.finish();
            let middle = "m".repeat(lengths.iter().sum());
            assert_eq!(body.to_vec(), format!("head{middle}tail").as_bytes());
            let is_shared = |chunk: &&Bytes| buffer.chunks.iter().any(|own| own.as_ptr() == chunk.as_ptr());
            assert_eq!(body.0.iter().filter(is_shared).count(), shared, "{lengths:?}");
        }
    }

    #[test]
    fn appends_nothing_if_writing_fails() {
        let mut buffer = appended(&[3]);
        let failed = buffer.append(|json| {
            json.extend_from_slice(b"half");
            Err::<(), _>(Error::request("broken"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "broken");
        assert_eq!(buffer.end, b"mmm");
    }
}
