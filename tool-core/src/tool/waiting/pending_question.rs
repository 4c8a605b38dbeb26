//! One question of a call.

use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::ask_error::{AskError, AskErrorKind};
use super::asking::{Asking, Open};
use super::call_notes::QuestionReply;
use crate::arguments::Contract;
use crate::tool::{AnswerType, IntoAnswer, Question, Wrapped, decode_answer};

/// A question that is asked once it is awaited; created by [`Asker::ask`](crate::tool::Asker::ask).
#[must_use = "a question is asked once it is awaited"]
pub struct PendingQuestion<'a, T> {
    asking: Result<&'a Asking, AskError>,
    question: Question,
    /// The reason why it cannot be asked.
    invalid: Option<String>,
    contract: Contract,
    /// With it, only [`Asker::ask`] has a bound on `T`, so an unmet one is reported once and not for each later method.
    read: fn(&str, &Contract) -> Result<T, String>,
}

impl<'a, T: AnswerType> PendingQuestion<'a, T> {
    pub(super) fn new(asking: Result<&'a Asking, AskError>, question: Question, contract: Contract) -> Self {
        Self { asking, question, invalid: None, contract, read }
    }
}

impl<'a, T> PendingQuestion<'a, T> {
    /// Sets the answers to choose from. If the call is executed again and the answer is no longer among them, the question is asked
    /// again.
    pub fn choices<C: IntoAnswer<T>>(self, choices: impl IntoIterator<Item = C>) -> Self
    where
        T: Serialize,
    {
        self.choose_from(choices.into_iter().map(IntoAnswer::into_answer))
    }

    /// Sets the answers to choose from, like [`choices`](Self::choices), each with the text that the person sees in its place.
    pub fn choices_with_labels<C: IntoAnswer<T>, L: Into<String>>(
        mut self,
        choices: impl IntoIterator<Item = (C, L)>,
    ) -> Self
    where
        T: Serialize,
    {
        let (choices, labels): (Vec<_>, _) =
            choices.into_iter().map(|(choice, label)| (choice.into_answer(), label.into())).unzip();
        self.question.labels = labels;
        self.choose_from(choices)
    }

    fn choose_from(mut self, choices: impl IntoIterator<Item = T>) -> Self
    where
        T: Serialize,
    {
        let choices: Result<Vec<_>, _> = choices.into_iter().map(serde_json::to_value).collect();
        match choices {
            Ok(choices) if choices.is_empty() => {
                self.invalid = Some("there is nothing to choose from".into())
            }
            Ok(choices) => self.question.choices = choices,
            Err(error) => self.invalid = Some(error.to_string()),
        }
        self
    }

    /// Sets the answer that is suggested, and that holds if the question expires or nobody can be asked.
    pub fn default(mut self, answer: impl IntoAnswer<T>) -> Self
    where
        T: Serialize,
    {
        match serde_json::to_value(answer.into_answer()) {
            Ok(answer) => self.question.default = Some(answer),
            Err(error) => self.invalid = Some(error.to_string()),
        }
        self
    }

    /// Keeps the answer in memory only: it is never stored, and a call that is restored asks again.
    pub fn secret(mut self) -> Self {
        self.question.is_secret = true;
        self
    }

    /// States what was wrong with the answer to an earlier question.
    pub fn problem(mut self, problem: Option<String>) -> Self {
        self.question.problem = problem;
        self
    }

    /// Lets the question expire after this time.
    pub fn expires(mut self, after: Duration) -> Self {
        self.question.expires = Some(after);
        self
    }

    async fn ask(mut self) -> Result<T, AskError> {
        if let Some(why) = self.invalid {
            return Err(AskError::new(AskErrorKind::Invalid, why));
        }
        let asking = match &self.asking {
            Ok(asking) => *asking,
            Err(reason) => return self.read_default(reason.clone()),
        };
        let reply = asking.lock().notes.find(&self.question).cloned();
        match reply {
            Some(QuestionReply::Answer(answer)) => {
                let checked = self.question.check(&answer);
                match checked.and_then(|()| (self.read)(&answer, &self.contract)) {
                    Ok(answer) => return Ok(answer),
                    Err(_) if asking.refuses() => return self.read_default(AskError::OUTSIDE),
                    Err(problem) => {
                        asking.lock().notes.forget(&self.question);
                        // The problem of a secret answer can quote it.
                        let is_secret = self.question.is_secret;
                        let expected = || self.contract.expected("answer");
                        self.question.problem = Some(if is_secret { expected() } else { problem });
                    }
                }
            }
            Some(QuestionReply::Declined(why)) => {
                let kind = AskErrorKind::Declined;
                return Err(why.map_or_else(|| kind.into(), |why| AskError::new(kind, why)));
            }
            Some(QuestionReply::Expired) => {
                return self.read_default(AskErrorKind::Expired);
            }
            Some(QuestionReply::Unavailable) => {
                return self.read_default(AskErrorKind::Unavailable);
            }
            Some(QuestionReply::Refused(why)) => {
                let error = AskError::new(AskErrorKind::Unavailable, why);
                return self.read_default(error);
            }
            None if asking.refuses() => return self.read_default(AskError::OUTSIDE),
            None => {}
        }
        let _open = Open::new(asking, self.question)?;
        // The executor ends the call here.
        pending().await
    }

    fn read_default(&self, why: impl Into<AskError>) -> Result<T, AskError> {
        let Some(default) = &self.question.default else { return Err(why.into()) };
        (self.read)(&default.to_string(), &self.contract)
            .map_err(|problem| AskError::new(AskErrorKind::Invalid, problem))
    }
}

impl<'a, T: 'a> IntoFuture for PendingQuestion<'a, T> {
    type Output = Result<T, AskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

impl<T> fmt::Debug for PendingQuestion<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingQuestion").field(&self.question).finish()
    }
}

/// Reads an answer, or returns what is wrong with it.
fn read<T: AnswerType>(answer: &str, contract: &Contract) -> Result<T, String> {
    let object = format!(r#"{{"answer":{answer}}}"#);
    Ok(decode_answer::<Wrapped<T>>(&object, contract)?.answer)
}
