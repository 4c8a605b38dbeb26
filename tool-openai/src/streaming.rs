//! From the events of a streamed answer to the pieces of the response, for every API.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use reqwest::Url;
use tokio::time::{Sleep, sleep};
use tool_core::{ChatResponse, Delta};

use crate::Error;
use crate::client::{Answer, Client, LONGEST_BODY};
use crate::sse::{Broken, Event, Events};

/// How long the end of an answer is waited for behind its last event: a connection whose answer is not read to its end is
/// closed, and to make another takes about as long.
const LONGEST_END: Duration = Duration::from_millis(50);

/// Puts a response together from the events of its stream, as one API has them.
pub(crate) trait Assemble {
    /// Takes in the data of an event, and tells what is new. Behind the event that is the last, there is no other.
    fn add(&mut self, event: &Event<'_>, tell: &mut impl FnMut(Delta)) -> Result<Progress, Problem>;

    /// Something of the response has come.
    fn has_begun(&self) -> bool;

    /// All that the response needs has come, should the stream end here.
    fn is_finished(&self) -> bool;

    /// The response, of what has come.
    fn into_response(self) -> ChatResponse;
}

/// Whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Goes,
    /// The event was the last.
    Done,
}

/// Why an answer, or an event of it, gives no response.
#[derive(Debug)]
pub(crate) enum Problem {
    /// It tells of an error in this JSON; some servers do so under status 200.
    Api(String),
    /// It is not one of the API.
    Unreadable(String),
    /// The model's reply was given up, for this reason.
    GivenUp(String),
    /// It is one of the API, with nothing in it.
    Empty,
}

/// The pieces of a streamed answer, as they come.
///
/// - A stream that ends, or breaks, once the response [is finished](Assemble::is_finished) is whole.
/// - One that ends or breaks before that and without a last event is an error that has what came.
/// - What comes behind the last event is nothing, and is only waited for a moment.
pub(crate) fn deltas<'a, A: Assemble + Send + Unpin + 'a>(
    client: &'a Client,
    answer: Answer,
    assembler: A,
) -> impl Stream<Item = Result<Delta, Error>> + Send + 'a {
    Deltas {
        client,
        url: answer.url.clone(),
        request_id: answer.request_id.clone(),
        events: Some(Events::new(answer.into_bytes().boxed(), LONGEST_BODY)),
        end: None,
        assembler: Some(assembler),
        ready: VecDeque::new(),
        failure: None,
    }
}

struct Deltas<'a, A> {
    client: &'a Client,
    url: Url,
    request_id: Option<String>,
    /// Gone with the connection once all is read.
    events: Option<Events<BoxStream<'a, reqwest::Result<Bytes>>>>,
    /// How long the end is still waited for, behind the last event.
    end: Option<Pin<Box<Sleep>>>,
    /// Gone once the response is told to be whole, or the stream is over otherwise.
    assembler: Option<A>,
    /// What was told and is not given yet.
    ready: VecDeque<Delta>,
    /// What is told behind that.
    failure: Option<Error>,
}

impl<A: Assemble + Unpin> Stream for Deltas<'_, A> {
    type Item = Result<Delta, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.ready.front().is_some_and(|delta| matches!(delta, Delta::Done(_))) {
                ready!(this.poll_end(context));
            }
            if let Some(delta) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(delta)));
            }
            let (Some(assembler), Some(events)) = (&mut this.assembler, &mut this.events) else {
                return Poll::Ready(this.failure.take().map(Err));
            };
            let step = match ready!(events.poll_next(context)) {
                Ok(Some(event)) => {
                    let added = assembler.add(&event, &mut |delta| this.ready.push_back(delta));
                    match added {
                        Ok(Progress::Goes) => continue,
                        Ok(Progress::Done) => Step::Done,
                        // A line that the end of the stream cut is no line of the API.
                        Err(Problem::Unreadable(_)) if !event.is_whole => Step::Broken(None),
                        Err(problem) => Step::Problem(problem, event.data.into_owned()),
                    }
                }
                Ok(None) => Step::Broken(None),
                Err(broken) => Step::Broken(Some(broken)),
            };
            this.end(step);
        }
    }
}

/// How the stream of events is over.
enum Step {
    Done,
    /// Without a last event.
    Broken(Option<Broken<reqwest::Error>>),
    /// With an event of this data.
    Problem(Problem, String),
}

impl<A: Assemble> Deltas<'_, A> {
    /// Lets go of the connection, when the answer is over or has not come to its end in time.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let (Some(events), Some(end)) = (&mut self.events, &mut self.end)
            && events.poll_end(context).is_pending()
        {
            ready!(end.as_mut().poll(context));
        }
        (self.events, self.end) = (None, None);
        Poll::Ready(())
    }

    fn end(&mut self, step: Step) {
        let Some(assembler) = self.assembler.take() else { return };
        if matches!(step, Step::Done) {
            self.end = Some(Box::pin(sleep(LONGEST_END)));
        }
        match self.response(step, assembler) {
            Ok(response) => self.ready.push_back(Delta::Done(response)),
            Err(error) => self.failure = Some(error.with_request_id(self.request_id.clone())),
        }
    }

    fn response(&self, step: Step, assembler: A) -> Result<ChatResponse, Error> {
        match step {
            Step::Done if assembler.has_begun() => Ok(assembler.into_response()),
            Step::Done => Err(Error::invalid_response("the stream ended before it had begun")),
            // Nothing but the usage can be missing then.
            Step::Broken(_) if assembler.is_finished() => Ok(assembler.into_response()),
            Step::Broken(broken) => {
                let why = broken.map(|broken| self.broken(broken));
                Err(Error::incomplete(why).with_partial(assembler.into_response()))
            }
            Step::Problem(problem, data) => Err(self.problem(problem, &data, assembler)),
        }
    }

    fn broken(&self, broken: Broken<reqwest::Error>) -> Error {
        match broken {
            Broken::Bytes(error) => Error::transport(&self.url, error),
            Broken::TooLong => Error::invalid_response(format!(
                "the stream cannot be read: it is longer than {LONGEST_BODY} bytes"
            )),
        }
    }

    fn problem(&self, problem: Problem, data: &str, assembler: A) -> Error {
        let error = self.client.problem(problem, data, Some("text/event-stream"), self.request_id.clone());
        error.with_partial(assembler.into_response())
    }
}
