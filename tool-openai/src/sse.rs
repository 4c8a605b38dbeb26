//! Server-sent events, read from the bytes of an answer as they come.
//!
//! Nothing is copied of an event whose data is one line, as that of nearly every event is: it is read where it stands.

use std::borrow::Cow;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};

/// What stands at the beginning of a text to say that it is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much may come behind the last event that anybody reads.
const LONGEST_REST: usize = 16 << 10;

/// An event with data; such without are nothing.
#[derive(Debug, PartialEq)]
pub(crate) struct Event<'a> {
    /// What it is called; empty for most.
    pub(crate) name: Cow<'a, str>,
    /// Its data, the lines of it joined; where they are no UTF-8, there is a replacement character.
    pub(crate) data: Cow<'a, str>,
    /// The blank line behind it has come. One that ends with the stream may be cut short.
    pub(crate) is_whole: bool,
}

/// Why there are no more events.
#[derive(Debug)]
pub(crate) enum Broken<E> {
    /// The bytes stopped coming.
    Bytes(E),
    /// More came than is read.
    TooLong,
}

/// The events of a stream of bytes.
pub(crate) struct Events<S> {
    bytes: S,
    /// How many bytes are still taken.
    left: usize,
    buffer: Vec<u8>,
    /// Where the first line stands that is not read.
    start: usize,
    /// Up to here, there is no end of that line.
    searched: usize,
    /// No line was read yet.
    is_at_start: bool,
    /// The last line ended with a carriage return: a line feed behind it belongs to it.
    is_behind_return: bool,
    /// No more bytes come.
    is_at_end: bool,
    name: Vec<u8>,
    data: Data,
    /// The event was given: what is read next is another.
    is_given: bool,
}

/// The data of the event that is being read.
enum Data {
    None,
    /// One line, which is in the buffer.
    Line(Range<usize>),
    /// Several lines.
    Lines(Vec<u8>),
}

impl<S> Events<S> {
    /// The events of these bytes, of which at most so many are read.
    pub(crate) fn new(bytes: S, most: usize) -> Self {
        Self {
            bytes,
            left: most,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            is_at_start: true,
            is_behind_return: false,
            is_at_end: false,
            name: Vec::new(),
            data: Data::None,
            is_given: false,
        }
    }

    /// Reads lines until there is an event; whether there is.
    fn read_event(&mut self) -> bool {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.take_line(line);
            } else if self.has_data() {
                return true;
            } else {
                self.forget();
            }
        }
        false
    }

    /// The next line in the buffer, without its end.
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.is_behind_return && self.start < self.buffer.len() {
            self.is_behind_return = false;
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
        self.is_behind_return = self.buffer[end] == b'\r';
        self.start = end + 1;
        if std::mem::take(&mut self.is_at_start) && self.buffer[line.clone()].starts_with(BYTE_ORDER_MARK) {
            line.start += BYTE_ORDER_MARK.len();
        }
        Some(line)
    }

    /// Takes in a line that is not blank.
    fn take_line(&mut self, line: Range<usize>) {
        let bytes = &self.buffer[line.clone()];
        let colon = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
        let mut value = (line.start + colon + 1).min(line.end)..line.end;
        if self.buffer.get(value.start) == Some(&b' ') && !value.is_empty() {
            value.start += 1;
        }
        match &bytes[..colon] {
            b"data" => self.take_data(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(&self.buffer[value]);
            }
            // A comment, which has no field, and fields that only who connects again needs.
            _ => {}
        }
    }

    fn take_data(&mut self, line: Range<usize>) {
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

    fn has_data(&self) -> bool {
        match &self.data {
            Data::None => false,
            Data::Line(line) => !line.is_empty(),
            Data::Lines(_) => true,
        }
    }

    /// Puts bytes behind those that are not read, and lets go of those that are.
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

    /// Whether there is an event, now that no more bytes come.
    fn end(&mut self) -> bool {
        self.is_at_end = true;
        // What is left is a line without its end.
        self.fill(b"\n");
        self.read_event() || self.has_data()
    }

    /// Makes ready for the next event.
    fn forget(&mut self) {
        self.name.clear();
        self.data = Data::None;
        self.is_given = false;
    }

    /// The event that was read.
    fn give(&mut self) -> Event<'_> {
        self.is_given = true;
        let data = match &self.data {
            Data::None => &[],
            Data::Line(line) => &self.buffer[line.clone()],
            Data::Lines(lines) => &**lines,
        };
        Event { name: text(&self.name), data: text(data), is_whole: !self.is_at_end }
    }
}

impl<S: Stream<Item = Result<Bytes, E>> + Unpin, E> Events<S> {
    /// The next event, or nothing at the end of the stream. Behind that or an error, there is no next.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Event<'_>>, Broken<E>>> {
        if self.is_given {
            self.forget();
        }
        loop {
            if self.read_event() {
                return Poll::Ready(Ok(Some(self.give())));
            }
            if self.is_at_end {
                return Poll::Ready(Ok(None));
            }
            match ready!(self.bytes.poll_next_unpin(context)) {
                Some(Ok(bytes)) => {
                    self.left = match self.left.checked_sub(bytes.len()) {
                        Some(left) => left,
                        None => return Poll::Ready(Err(Broken::TooLong)),
                    };
                    self.fill(&bytes);
                }
                Some(Err(error)) => return Poll::Ready(Err(Broken::Bytes(error))),
                None if self.end() => return Poll::Ready(Ok(Some(self.give()))),
                None => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl<S: Stream<Item = Result<Bytes, E>> + Unpin, E> Events<S> {
    /// Reads what is left of the stream, which is nothing to anybody, until it is over; more than a little is left there.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.left = self.left.min(LONGEST_REST);
        while !self.is_at_end {
            match ready!(self.bytes.poll_next_unpin(context)) {
                Some(Ok(bytes)) if bytes.len() < self.left => self.left -= bytes.len(),
                _ => self.is_at_end = true,
            }
        }
        Poll::Ready(())
    }
}

/// To look for what is no text is slower than to see that there is none.
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

    /// The events of a stream whose bytes come in these pieces; an error if it is longer than this.
    fn events(pieces: Vec<Vec<u8>>, most: usize) -> Result<Vec<Found>, Broken<Infallible>> {
        let bytes = stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from(piece))));
        let mut events = Events::new(bytes, most);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        loop {
            let Poll::Ready(event) = events.poll_next(&mut context) else { unreachable!("all is there") };
            let Some(event) = event? else { return Ok(found) };
            found.push((event.name.into_owned(), event.data.into_owned(), event.is_whole));
        }
    }

    fn in_pieces(stream: &[u8], length: usize) -> Vec<Vec<u8>> {
        stream.chunks(length).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn streams_of_all_forms_however_they_are_cut() {
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
                let found = events(in_pieces(stream.as_bytes(), length), 1000).expect("it is short");
                let found: Vec<_> =
                    found.iter().map(|(name, data, is_whole)| (&**name, &**data, *is_whole)).collect();
                assert_eq!(found, *expected, "{stream:?} in pieces of {length}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let found = events(in_pieces(b"data: a\xff\xe6\x97b\n\n", 2), 1000).expect("it is short");
        assert_eq!(found, [(String::new(), "a\u{fffd}\u{fffd}b".to_owned(), true)]);
    }

    #[test]
    fn a_stream_is_as_long_as_it_may_be() {
        let stream = b"data: a\n\ndata: b\n\n";
        assert_eq!(events(in_pieces(stream, 3), stream.len()).expect("it is as long").len(), 2);
        let broken = events(in_pieces(stream, 3), stream.len() - 1);
        assert!(matches!(broken, Err(Broken::TooLong)), "{broken:?}");
    }
}
