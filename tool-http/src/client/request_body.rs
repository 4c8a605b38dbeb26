//! Request bodies whose start is shared by the requests of a conversation, without a copy of all but its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Shorter chunks are copied, because sending them separately costs more.
const MIN_CHUNK_BYTES: usize = 16 << 10;

/// An append-only buffer whose contents are sent with every request. Requests share its chunks and copy only its end.
#[derive(Debug, Default)]
pub struct AppendBuffer {
    /// None is shorter than the minimum.
    chunks: Vec<Bytes>,
    end: Vec<u8>,
}

impl AppendBuffer {
    /// Appends what `write` writes, or nothing if it fails. It must not change what is there.
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn append<T, E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>) -> Result<T, E> {
        let length = self.end.len();
        let written = write(&mut self.end).inspect_err(|_| self.end.truncate(length))?;
        if self.end.len() >= MIN_CHUNK_BYTES {
            self.chunks.push(std::mem::take(&mut self.end).into_boxed_slice().into());
        }
        Ok(written)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum::<usize>() + self.end.len()
    }

    /// Returns `true` if nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.end.is_empty()
    }
}

/// Builds a [`RequestBody`].
#[derive(Debug, Default)]
pub struct BodyWriter {
    chunks: Vec<Bytes>,
    last: Vec<u8>,
}

impl BodyWriter {
    /// Creates a writer for a body that starts with these bytes.
    #[must_use]
    pub fn starting_with(start: Vec<u8>) -> Self {
        Self { chunks: Vec::new(), last: start }
    }

    /// Returns `true` if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.last.is_empty()
    }

    /// Returns the buffer that further bytes are written to.
    pub fn json(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    /// Appends a buffer.
    pub fn append(&mut self, buffer: &AppendBuffer) {
        self.append_range(buffer, 0..usize::MAX);
    }

    /// Appends the part of a buffer that is within this range of bytes.
    pub fn append_range(&mut self, buffer: &AppendBuffer, range: Range<usize>) {
        let mut start = 0;
        for chunk in &buffer.chunks {
            let within = part(&range, start, chunk.len());
            start += chunk.len();
            if within.len() >= MIN_CHUNK_BYTES {
                self.chunks.push(std::mem::take(&mut self.last).into());
                self.chunks.push(chunk.slice(within));
            } else {
                self.last.extend_from_slice(&chunk[within]);
            }
        }
        self.last.extend_from_slice(&buffer.end[part(&range, start, buffer.end.len())]);
    }

    /// Appends a text that is shared if it is long.
    pub fn append_shared(&mut self, text: &Arc<str>) {
        if text.len() < MIN_CHUNK_BYTES {
            return self.last.extend_from_slice(text.as_bytes());
        }
        self.chunks.push(std::mem::take(&mut self.last).into());
        self.chunks.push(Bytes::from_owner(SharedText(Arc::clone(text))));
    }

    /// Returns the body.
    #[must_use]
    pub fn finish(mut self) -> RequestBody {
        self.chunks.push(self.last.into());
        RequestBody(self.chunks)
    }
}

/// Owns what a chunk shares.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Returns the part of a chunk that is within a range. The chunk starts at `start` and has `length` bytes.
fn part(range: &Range<usize>, start: usize, length: usize) -> Range<usize> {
    let within = |position: usize| position.saturating_sub(start).min(length);
    within(range.start)..within(range.end)
}

/// The body of a request. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct RequestBody(Vec<Bytes>);

impl RequestBody {
    /// Returns the body for `reqwest`.
    #[must_use]
    pub fn to_body(&self) -> reqwest::Body {
        match &*self.0 {
            [only] => only.clone().into(),
            chunks => {
                let chunks = VecDeque::from(chunks.to_vec());
                reqwest::Body::wrap(Chunks { chunks, remaining: self.len() as u64 })
            }
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes, for tests.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
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
                json.extend((0..*length).map(|index| b'a' + (index % 26) as u8));
                Ok::<_, ()>(())
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
            assert_eq!((buffer.is_empty(), buffer.len()), (lengths.is_empty(), lengths.iter().sum()));
            let mut writer = BodyWriter::starting_with(b"head".to_vec());
            writer.append(&buffer);
            writer.json().extend_from_slice(b"tail");
            let body = writer.finish();
            let middle = [buffer.chunks.concat(), buffer.end.clone()].concat();
            assert_eq!(body.to_vec(), [b"head", &*middle, b"tail"].concat());
            let is_shared = |chunk: &&Bytes| buffer.chunks.iter().any(|own| own.as_ptr() == chunk.as_ptr());
            assert_eq!(body.0.iter().filter(is_shared).count(), shared, "{lengths:?}");
        }
    }

    #[test]
    fn appends_ranges() {
        const LONG: usize = MIN_CHUNK_BYTES;
        let buffer = appended(&[3 * LONG, 2 * LONG, 100]);
        let whole = [buffer.chunks.concat(), buffer.end.clone()].concat();
        for middle in [0, 1, LONG, 3 * LONG, 4 * LONG, 5 * LONG + 7, 5 * LONG + 100] {
            let mut writer = BodyWriter::default();
            writer.append_range(&buffer, 0..middle);
            writer.append_range(&buffer, middle..usize::MAX);
            assert!(writer.finish().to_vec() == whole, "{middle}");
        }
    }

    #[test]
    fn appends_nothing_if_writing_fails() {
        let mut buffer = appended(&[3]);
        let failed = buffer.append(|json| {
            json.extend_from_slice(b"half");
            Err::<(), _>("broken")
        });
        assert_eq!(failed, Err("broken"));
        assert_eq!(buffer.end, b"abc");
    }
}
