//! Retries after the server rejected a tool call that the model wrote.

use tool_core::Message;
use tool_core::model::ChatRequest;
use tool_http::client::Error;

/// The number of times that a malformed call is reported to the model.
const MAX_REPORTS: u32 = 2;

/// A request that is retried if the server could not parse the tool call that the model wrote. The retry reports the error
/// to the model, like any other wrong call. Groq rejects the whole request in this case:
/// <https://console.groq.com/docs/tool-use>.
pub(crate) struct MalformedCallRetries<'a> {
    request: &'a ChatRequest<'a>,
    amended: Option<ChatRequest<'static>>,
    reports: u32,
}

impl<'a> MalformedCallRetries<'a> {
    pub(crate) fn new(request: &'a ChatRequest<'a>) -> Self {
        Self { request, amended: None, reports: 0 }
    }

    /// Returns the request to send now.
    pub(crate) fn request(&self) -> &ChatRequest<'_> {
        match &self.amended {
            Some(amended) => amended,
            None => self.request,
        }
    }

    /// Adds a report of the error to the request.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the model got enough reports.
    pub(crate) fn report(&mut self, error: Error) -> Result<(), Error> {
        if self.reports == MAX_REPORTS {
            return Err(error);
        }
        self.reports += 1;
        let request = self.request();
        let mut messages = request.messages().to_vec();
        messages.extend(error.failed_generation().map(Message::assistant));
        let reason = error.message().unwrap_or_default();
        messages.push(Message::user(format!(
            "Your last reply is not a valid tool call ({reason}). Write the call again, with the arguments as a JSON object."
        )));
        // These messages are not part of the conversation.
        self.amended = Some(request.copy_with_messages(messages));
        Ok(())
    }
}
