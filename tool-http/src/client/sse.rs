//! Reads server-sent events from the chunks of a body.
//!
//! Nearly every event has a single line of data, which is borrowed from the buffer instead of copied. `sse-stream`, which the
//! MCP SDK uses, copies every line, fails at unknown fields, and has no limit.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};

/// The UTF-8 byte order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The number of bytes that are read after the last event.
const MAX_TAIL_BYTES: usize = 16 << 10;

/// An event with data, an id or a retry delay. All others are ignored.
#[derive(Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// The event's name, usually empty.
    pub name: Cow<'a, str>,
    /// The lines of its data, joined. Invalid UTF-8 is replaced.
    pub data: Cow<'a, str>,
    /// Its id, from which the stream can be resumed.
    pub id: Option<Cow<'a, str>>,
    /// The delay before the stream is resumed, in milliseconds.
    pub retry: Option<u64>,
    /// `true` if its final blank line has arrived. An event that ends with the stream may be truncated.
    pub is_whole: bool,
}

/// The reason that no more events can be read.
#[derive(Debug)]
pub enum ReadError<E> {
    /// Reading the body failed.
    Body(E),
    /// The body, or one event, is longer than the limit.
    TooLong,
}

/// Reads the events of a stream of bytes.
pub struct EventReader<S> {
    bytes: S,
    /// The number of further bytes that are accepted.
    remaining: usize,
    max_event_bytes: usize,
    /// The size of the lines of the current event that were read.
    event_bytes: usize,
    buffer: Vec<u8>,
    /// The start of the first unread line.
    start: usize,
    /// There is no line end between `start` and here.
    searched: usize,
    /// No line has been read yet.
    is_at_start: bool,
    /// The last line ended with a carriage return, so a line feed that follows belongs to it.
    is_after_return: bool,
    /// The stream of bytes has ended.
    is_at_end: bool,
    name: Vec<u8>,
    data: Data,
    id: Option<Vec<u8>>,
    retry: Option<u64>,
    /// The current event was returned, so the next line starts another one.
    is_returned: bool,
}

/// The data of the current event.
enum Data {
    None,
    /// One line of the buffer.
    Line(Range<usize>),
    /// Several lines.
    Lines(Vec<u8>),
}

impl<S> EventReader<S> {
    /// Creates a reader that accepts at most `max_bytes` in total.
    pub fn new(bytes: S, max_bytes: usize) -> Self {
        Self {
            bytes,
            remaining: max_bytes,
            max_event_bytes: usize::MAX,
            event_bytes: 0,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            is_at_start: true,
            is_after_return: false,
            is_at_end: false,
            name: Vec::new(),
            data: Data::None,
            id: None,
            retry: None,
            is_returned: false,
        }
    }

    /// Creates a reader of an endless stream whose events have at most `max_event_bytes` each.
    pub fn endless(bytes: S, max_event_bytes: usize) -> Self {
        Self { max_event_bytes, ..Self::new(bytes, usize::MAX) }
    }

    /// Reads the lines of the buffer up to the end of an event. Returns `true` if there is one.
    fn read_event(&mut self) -> bool {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.parse_line(line);
            } else if self.is_event() {
                return true;
            } else {
                self.reset();
            }
        }
        false
    }

    /// Returns the next line in the buffer, without its end.
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.is_after_return && self.start < self.buffer.len() {
            self.is_after_return = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
            }
        }
        let from = self.searched.max(self.start);
        let Some(end) = memchr::memchr2(b'\n', b'\r', &self.buffer[from..]).map(|found| from + found) else {
            self.searched = self.buffer.len();
            return None;
        };
        let mut line = self.start..end;
        self.event_bytes = self.event_bytes.saturating_add(line.len());
        self.is_after_return = self.buffer[end] == b'\r';
        self.start = end + 1;
        if std::mem::take(&mut self.is_at_start) && self.buffer[line.clone()].starts_with(BYTE_ORDER_MARK) {
            line.start += BYTE_ORDER_MARK.len();
        }
        Some(line)
    }

    /// Parses a line that is not blank.
    fn parse_line(&mut self, line: Range<usize>) {
        let bytes = &self.buffer[line.clone()];
        let colon = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
        let mut value = (line.start + colon + 1).min(line.end)..line.end;
        if self.buffer.get(value.start) == Some(&b' ') && !value.is_empty() {
            value.start += 1;
        }
        match &bytes[..colon] {
            b"data" => self.append_data(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(&self.buffer[value]);
            }
            b"id" if memchr::memchr(0, &self.buffer[value.clone()]).is_none() => {
                self.id = Some(self.buffer[value].to_vec());
            }
            b"retry" => {
                let digits = std::str::from_utf8(&self.buffer[value]);
                self.retry = digits.ok().and_then(|digits| digits.trim().parse().ok());
            }
            // Comments and unknown fields.
            _ => {}
        }
    }

    fn append_data(&mut self, line: Range<usize>) {
        self.data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => Data::Line(line),
            Data::Line(first) => Data::Lines([&self.buffer[first], b"\n", &self.buffer[line]].concat()),
            Data::Lines(mut lines) => {
                lines.push(b'\n');
                lines.extend_from_slice(&self.buffer[line]);
                Data::Lines(lines)
            }
        };
    }

    /// Returns `true` if the lines that were read are an event.
    fn is_event(&self) -> bool {
        match &self.data {
            _ if self.id.is_some() || self.retry.is_some() => true,
            Data::None => false,
            Data::Line(line) => !line.is_empty(),
            Data::Lines(_) => true,
        }
    }

    /// Appends bytes to the unread ones and drops those that were read.
    fn fill(&mut self, bytes: &[u8]) {
        let read = match &self.data {
            Data::Line(line) => line.start,
            Data::None | Data::Lines(_) => self.start,
        };
        self.buffer.drain(..read);
        self.start -= read;
        self.searched = self.searched.saturating_sub(read);
        if let Data::Line(line) = &mut self.data {
            *line = line.start - read..line.end - read;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Handles the end of the stream. Returns `true` if there is one more event.
    fn end(&mut self) -> bool {
        self.is_at_end = true;
        // The rest is a line without its end.
        self.fill(b"\n");
        self.read_event() || self.is_event()
    }

    /// Prepares for the next event.
    fn reset(&mut self) {
        self.name.clear();
        self.data = Data::None;
        (self.id, self.retry) = (None, None);
        self.event_bytes = 0;
        self.is_returned = false;
    }

    /// Returns the event that was read.
    fn event(&mut self) -> Event<'_> {
        self.is_returned = true;
        let data = match &self.data {
            Data::None => &[],
            Data::Line(line) => &self.buffer[line.clone()],
            Data::Lines(lines) => &**lines,
        };
        Event {
            name: text(&self.name),
            data: text(data),
            id: self.id.as_deref().map(text),
            retry: self.retry,
            is_whole: !self.is_at_end,
        }
    }
}

/// Shows no data.
impl<S> fmt::Debug for EventReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReader").finish_non_exhaustive()
    }
}

impl<S: Stream<Item = Result<Bytes, E>> + Unpin, E> EventReader<S> {
    /// Returns the next event, or `None` at the end of the stream. Must not be called again after that or an error.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read or exceeds a limit.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Event<'_>>, ReadError<E>>> {
        if self.is_returned {
            self.reset();
        }
        loop {
            let is_event = self.read_event();
            let pending = if is_event { 0 } else { self.buffer.len().saturating_sub(self.start) };
            if self.event_bytes.saturating_add(pending) > self.max_event_bytes {
                return Poll::Ready(Err(ReadError::TooLong));
            }
            if is_event {
                return Poll::Ready(Ok(Some(self.event())));
            }
            if self.is_at_end {
                return Poll::Ready(Ok(None));
            }
            match ready!(self.bytes.poll_next_unpin(context)) {
                Some(Ok(bytes)) => {
                    self.remaining = match self.remaining.checked_sub(bytes.len()) {
                        Some(remaining) => remaining,
                        None => return Poll::Ready(Err(ReadError::TooLong)),
                    };
                    self.fill(&bytes);
                }
                Some(Err(error)) => return Poll::Ready(Err(ReadError::Body(error))),
                None if self.end() => return Poll::Ready(Ok(Some(self.event()))),
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads the stream to its end and ignores the data, unless there is much of it.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.remaining = self.remaining.min(MAX_TAIL_BYTES);
        while !self.is_at_end {
            match ready!(self.bytes.poll_next_unpin(context)) {
                Some(Ok(bytes)) if bytes.len() < self.remaining => self.remaining -= bytes.len(),
                _ => self.is_at_end = true,
            }
        }
        Poll::Ready(())
    }
}

/// Converts bytes to text. Validating first is faster than a lossy conversion, and nearly all data is valid.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    type Found = (String, String, bool);
    type Expected = Vec<(&'static str, &'static str, bool)>;

    /// Reads the events of a stream that arrives in these chunks.
    fn events(chunks: Vec<Vec<u8>>, limit: usize) -> Result<Vec<Found>, ReadError<Infallible>> {
        let bytes = stream::iter(chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))));
        let mut events = EventReader::new(bytes, limit);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        loop {
            let Poll::Ready(event) = events.poll_next(&mut context) else {
                unreachable!("the stream is always ready")
            };
            let Some(event) = event? else { return Ok(found) };
            found.push((event.name.into_owned(), event.data.into_owned(), event.is_whole));
        }
    }

    fn in_chunks(stream: &[u8], length: usize) -> Vec<Vec<u8>> {
        stream.chunks(length).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn reads_all_forms_of_streams_in_chunks_of_any_length() {
        let whole = |data: &[&'static str]| data.iter().map(|data| ("", *data, true)).collect::<Vec<_>>();
        let table: &[(&str, Expected)] = &[
            ("", vec![]),
            ("data: a\n\ndata: b\n\n", whole(&["a", "b"])),
            ("data: a\r\n\r\ndata: b\r\n\r\n", whole(&["a", "b"])),
            ("data: a\r\rdata: b\r\r", whole(&["a", "b"])),
            ("data: a\n\r\ndata: b\r\n\ndata: c\r\n\rdata: d\n\n", whole(&["a", "b", "c", "d"])),
            ("\u{feff}data: a\n\n", whole(&["a"])),
            ("\u{feff}\n\u{feff}data: a\n\n", vec![]),
            ("data:a\n\ndata:  b \n\n", whole(&["a", " b "])),
            ("data: a\ndata:b\ndata: c\n\n", whole(&["a\nb\nc"])),
            ("data\ndata\n\ndata\n\ndata:\n\n", whole(&["\n"])),
            (": hello\n\n:\n:\r\rdata: a\n: between\ndata: b\n\n", whole(&["a\nb"])),
            ("event: e\ndata: a\n\ndata: b\n\n", vec![("e", "a", true), ("", "b", true)]),
            ("event:e\nevent: f\nevent\ndata: a\n\n", whole(&["a"])),
            ("event: e\n\ndata: a\n\n", whole(&["a"])),
            ("id: 1\nretry: 5\nelse: x\n data: y\nDATA: z\ndatas: z\ndata: a\n\n", whole(&["a"])),
            ("id: 1\n\nretry: 5\n\nid: 1\ndata:\n\nretry: x\n\nid: \0\n\n", whole(&["", "", ""])),
            ("data: a:b: c\n\n", whole(&["a:b: c"])),
            ("data: \u{65e5}\u{672c} \u{1f600}\n\n", whole(&["\u{65e5}\u{672c} \u{1f600}"])),
            ("data: a\n\ndata: b", vec![("", "a", true), ("", "b", false)]),
            ("data: a\n\nevent: e\ndata: b\n", vec![("", "a", true), ("e", "b", false)]),
            ("data: a\ndata: b", vec![("", "a\nb", false)]),
            ("data: a\r\n\r\ndata: b\r", vec![("", "a", true), ("", "b", false)]),
            ("data: a\n\nevent: e", whole(&["a"])),
            ("data: a\n\n: bye", whole(&["a"])),
            ("data: a\n\ndata:", whole(&["a"])),
        ];
        for (stream, expected) in table {
            for length in 1..=stream.len().max(1) {
                let found = events(in_chunks(stream.as_bytes(), length), 1000).expect("it is short");
                let found: Vec<_> =
                    found.iter().map(|(name, data, is_whole)| (&**name, &**data, *is_whole)).collect();
                assert_eq!(found, *expected, "{stream:?} in chunks of {length}");
            }
        }
    }

    #[test]
    fn reads_ids_and_retry_delays() {
        let bytes =
            b"id: 7\nretry: 5\ndata: a\n\ndata: b\n\nid\nid: \0\nretry: soon\ndata: c\n\nretry: 9\n\n";
        let mut events =
            EventReader::new(stream::iter([Ok::<_, Infallible>(Bytes::from_static(bytes))]), 1000);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut next = || {
            let Poll::Ready(Ok(event)) = events.poll_next(&mut context) else {
                panic!("the stream is ready")
            };
            event.map(|event| (event.id.map(Cow::into_owned), event.retry, event.data.into_owned()))
        };
        assert_eq!(next(), Some((Some("7".into()), Some(5), "a".into())));
        assert_eq!(next(), Some((None, None, "b".into())));
        assert_eq!(next(), Some((Some(String::new()), None, "c".into())));
        assert_eq!(next(), Some((None, Some(9), String::new())));
        assert_eq!(next(), None);
    }

    #[test]
    fn replaces_invalid_utf_8() {
        let found = events(in_chunks(b"data: a\xff\xe6\x97b\n\n", 2), 1000).expect("it is short");
        assert_eq!(found, [(String::new(), "a\u{fffd}\u{fffd}b".to_owned(), true)]);
    }

    #[test]
    fn rejects_streams_beyond_the_limit() {
        let stream = b"data: a\n\ndata: b\n\n";
        assert_eq!(events(in_chunks(stream, 3), stream.len()).expect("it is within the limit").len(), 2);
        let outcome = events(in_chunks(stream, 3), stream.len() - 1);
        assert!(matches!(outcome, Err(ReadError::TooLong)), "{outcome:?}");
    }

    #[test]
    fn limits_each_event_of_an_endless_stream() {
        let read = |stream: &[u8], length: usize, limit: usize| {
            let chunks = in_chunks(stream, length).into_iter();
            let bytes = stream::iter(chunks.map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk))));
            let mut events = EventReader::endless(bytes, limit);
            let mut context = Context::from_waker(std::task::Waker::noop());
            let mut count = 0;
            loop {
                match events.poll_next(&mut context) {
                    Poll::Ready(Ok(Some(_))) => count += 1,
                    Poll::Ready(Ok(None)) => return (count, false),
                    Poll::Ready(Err(ReadError::TooLong)) => return (count, true),
                    other => unreachable!("{other:?}"),
                }
            }
        };
        let small = "data: a\n\n: ping\n\n".repeat(100);
        let long = format!("{small}data: abc\r\ndata: def\r\n\r\n{small}");
        for length in 1..=40 {
            assert_eq!(read(long.as_bytes(), length, 18), (201, false), "in chunks of {length}");
            assert_eq!(read(long.as_bytes(), length, 17), (100, true), "in chunks of {length}");
        }
        assert_eq!(read(b"data: a\n\ndata: aaaaaaaaaaaa", 3, 17), (1, true), "without the end of the line");
    }
}
