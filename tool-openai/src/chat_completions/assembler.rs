//! Puts a response together from its pieces; a whole answer is one piece.

use std::borrow::Cow;

use tool_core::{
    AssistantMessage, ChatResponse, Delta, FinishReason, JsonText, ProviderData, TokenLogprob, Usage,
};

use super::calls::{Calls, Entries};
use super::reasoning_details::ReasoningDetails;
use super::response::{Choice, Completion, WireMessage};
use crate::json::write_text;
use crate::quirks;
use crate::streaming::Problem;

/// What has come of a response.
pub(crate) struct Assembler<'a> {
    /// Who wants what is opaque to have back.
    provider: &'a str,
    id: Option<String>,
    model: Option<String>,
    message: AssistantMessage,
    calls: Calls,
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
    logprobs: Vec<TokenLogprob>,
    /// Which of the choices it is: the first that came.
    choice: Option<u64>,
    /// The reasoning came under the name under which it is wanted back.
    has_reasoning_content: bool,
    reasoning_details: ReasoningDetails,
    /// Of the message, as of a call.
    extra_content: Option<Box<str>>,
}

impl<'a> Assembler<'a> {
    /// Nothing has come. What is opaque in the response is kept under the provider's name.
    pub(super) fn new(provider: &'a str) -> Self {
        Self {
            provider,
            id: None,
            model: None,
            message: AssistantMessage::default(),
            calls: Calls::default(),
            finish_reason: None,
            usage: None,
            logprobs: Vec::new(),
            choice: None,
            has_reasoning_content: false,
            reasoning_details: ReasoningDetails::default(),
            extra_content: None,
        }
    }

    /// Takes in the JSON of a piece, and tells what is new.
    pub(super) fn add_json(&mut self, json: &str, tell: &mut impl FnMut(Delta)) -> Result<(), Problem> {
        match Completion::read(json) {
            Err(Problem::Unreadable(why)) => match quirks::without_lone_surrogates(json) {
                Some(mended) => self.add_piece(Completion::read(&mended)?, tell),
                None => Err(Problem::Unreadable(why)),
            },
            read => self.add_piece(read?, tell),
        }
    }

    /// Takes in a piece, and tells what is new; a reason to finish that is a failure of the provider is a problem.
    fn add_piece(&mut self, piece: Completion<'_>, tell: &mut impl FnMut(Delta)) -> Result<(), Problem> {
        let set_once = |field: &mut Option<String>, text: Option<Cow<'_, str>>| {
            if field.is_none() {
                *field = text.filter(|text| !text.is_empty()).map(Cow::into_owned);
            }
        };
        set_once(&mut self.id, piece.id);
        set_once(&mut self.model, piece.model);
        if let Some(usage) = piece.usage {
            self.usage = Some(usage.into());
        }
        match piece.choice {
            // Another was not asked for.
            Some(choice)
                if self.choice.is_some() && choice.index.is_some_and(|index| self.choice != Some(index)) =>
            {
                Ok(())
            }
            Some(choice) => self.add_choice(choice, tell),
            None => Ok(()),
        }
    }

    fn add_choice(&mut self, choice: Choice<'_>, tell: &mut impl FnMut(Delta)) -> Result<(), Problem> {
        self.choice.get_or_insert(choice.index.unwrap_or(0));
        self.logprobs.append(&mut choice.logprobs());
        if let Some(message) = choice.message {
            self.add_message(message, Entries::Whole, tell)?;
        }
        if let Some(delta) = choice.delta {
            self.add_message(delta, Entries::Fragments, tell)?;
        }
        let reason = choice.finish_reason.unwrap_or_default();
        if quirks::is_failure(&reason) {
            let why = format!("the provider gave the reply up, with the finish reason `{reason}`");
            return Err(Problem::GivenUp(why));
        }
        self.finish_reason = quirks::finish_reason(&reason).or(self.finish_reason.take());
        Ok(())
    }

    fn add_message(
        &mut self,
        message: WireMessage<'_>,
        entries: Entries,
        tell: &mut impl FnMut(Delta),
    ) -> Result<(), Problem> {
        self.has_reasoning_content |= message.reasoning_content.is_some();
        // Where both are, they are the same.
        let reasoning = message.reasoning_content.filter(|text| !text.is_empty()).or(message.reasoning);
        for thought in [reasoning.unwrap_or_default(), message.content.thinking] {
            if !thought.is_empty() {
                self.message.reasoning.get_or_insert_default().push_str(&thought);
                tell(Delta::Reasoning(thought.into_owned()));
            }
        }
        if let Some(details) = message.reasoning_details {
            self.reasoning_details.add(details)?;
        }
        if let Some(extra) = message.extra_content {
            self.extra_content = Some(extra.get().into());
        }
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.message.refusal.get_or_insert_default().push_str(&refusal);
            tell(Delta::Refusal(refusal.into_owned()));
        }
        let text = message.content.text;
        if !text.is_empty() {
            self.message.text.push_str(&text);
            tell(Delta::Text(text.into_owned()));
        }
        for call in message.tool_calls {
            self.calls.add(call, entries, tell)?;
        }
        if let Some(function) = message.function_call {
            self.calls.add_function_call(function, entries, tell)?;
        }
        Ok(())
    }

    /// Something of the response has come.
    pub(super) fn has_begun(&self) -> bool {
        self.choice.is_some()
    }

    /// A reason to finish has come.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The response, of what has come.
    pub(super) fn into_response(mut self) -> ChatResponse {
        self.message.tool_calls = std::mem::take(&mut self.calls).into_calls(self.provider);
        self.message.provider_data = self.provider_data();
        let mut response = ChatResponse::new(self.message);
        if let Some(reason) = self.finish_reason {
            response.finish_reason = reason;
        }
        response.usage = self.usage;
        response.id = self.id;
        response.model = self.model;
        response.logprobs = self.logprobs;
        response
    }

    /// The fields of the message that are sent back as they came, as one object.
    fn provider_data(&self) -> Option<ProviderData> {
        let mut json = Vec::new();
        if self.has_reasoning_content {
            json.extend_from_slice(br#","reasoning_content":"#);
            write_text(&mut json, self.message.reasoning.as_deref().unwrap_or_default());
        }
        if !self.reasoning_details.is_empty() {
            json.extend_from_slice(br#","reasoning_details":"#);
            self.reasoning_details.write(&mut json);
        }
        if let Some(extra) = &self.extra_content {
            json.extend_from_slice(br#","extra_content":"#);
            json.extend_from_slice(extra.as_bytes());
        }
        *json.first_mut()? = b'{';
        json.push(b'}');
        let json = JsonText::from_json(&String::from_utf8(json).ok()?).ok()?;
        Some(ProviderData::new(self.provider, json))
    }
}
