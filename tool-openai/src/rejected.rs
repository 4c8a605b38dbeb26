//! Calls that the model wrote so that the server could not read them.

use tool_core::{ChatRequest, Message};

use crate::Error;

/// How often the model is told.
const MOST_TELLINGS: u32 = 2;

/// A request that is asked again when the server could not read what the model wrote as a call: the model is told of it, as
/// of any other wrong call. Groq refuses the whole request then: <https://console.groq.com/docs/tool-use>.
pub(crate) struct Tellings<'a> {
    request: &'a ChatRequest<'a>,
    told: Option<ChatRequest<'static>>,
    so_far: u32,
}

impl<'a> Tellings<'a> {
    pub(crate) fn new(request: &'a ChatRequest<'a>) -> Self {
        Self { request, told: None, so_far: 0 }
    }

    /// What is asked now.
    pub(crate) fn request(&self) -> &ChatRequest<'_> {
        match &self.told {
            Some(told) => told,
            None => self.request,
        }
    }

    /// Tells the model of the error, in the next request.
    ///
    /// # Errors
    ///
    /// The error itself, if it is another one, or the model was told often enough.
    pub(crate) fn after(&mut self, error: Error) -> Result<(), Error> {
        if self.so_far == MOST_TELLINGS || !error.is_tool_generation() {
            return Err(error);
        }
        self.so_far += 1;
        let asked = self.request();
        let mut messages = asked.messages().to_vec();
        messages.extend(error.failed_generation().map(Message::assistant));
        let why = error.message().unwrap_or_default();
        messages.push(Message::user(format!(
            "That was no call of a tool that could be read ({why}). Write the call again, with the arguments as a JSON object."
        )));
        // Without the cache: these messages are no part of the conversation.
        let told = ChatRequest::new(messages)
            .with_tools(asked.tools().clone())
            .with_tool_choice(asked.tool_choice().clone())
            .with_parallel_tool_calls(asked.parallel_tool_calls())
            .with_options(asked.options().clone())
            .with_response_format(asked.response_format().cloned());
        self.told = Some(told);
        Ok(())
    }
}
