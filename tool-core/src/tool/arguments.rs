//! Types that a text of the model or of a person is decoded as: all arguments of a call, and answers.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ToolError;
use crate::arguments::{Contract, Mode, Repair, Typed, decode};
use crate::schema;

/// The arguments of a [`FunctionTool`](crate::FunctionTool): a struct that derives `serde::Deserialize` and `schemars::JsonSchema`. Each field
/// is an argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "must implement `serde::Deserialize` and `schemars::JsonSchema`",
    note = "for a struct of your own, add `#[derive(serde::Deserialize, schemars::JsonSchema)]`, with version 1 of `schemars`",
    note = "the function takes the struct by value: `|args: Args| …`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolArguments for T {}

/// A type that an answer can be parsed as, a model's or a person's: any type that implements `serde::Deserialize` and
/// `schemars::JsonSchema`, such as `Vec<String>` or your own type that derives both.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an answer",
    label = "needs `serde::Deserialize`, `schemars::JsonSchema` and `Send`",
    note = "above a type of your own, write `#[derive(serde::Deserialize, schemars::JsonSchema)]`, with version 1 of `schemars`"
)]
pub trait AnswerType: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> AnswerType for T {}

/// Wraps an answer that is not an object, because models and tools produce only objects.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Wrapped<T> {
    pub(crate) answer: T,
}

/// Returns what an object of all arguments must satisfy.
pub(crate) fn arguments_contract<T: ToolArguments>() -> Contract {
    Contract::of_type(schema::arguments_schema::<T>())
}

/// Decodes all arguments of a call as one value, and returns it with the repairs.
pub(crate) fn decode_arguments<T: DeserializeOwned>(
    text: &str,
    contract: &Contract,
    mode: Mode,
) -> Result<(T, Vec<Repair>), ToolError> {
    let mut arguments = Typed(None);
    let repairs = decode(text, contract, mode, &mut |decoder| {
        decoder.read_object(&mut arguments);
    })?;
    match arguments.0 {
        Some(arguments) => Ok((arguments, repairs)),
        None => Err(ToolError::invalid_arguments("the arguments do not match the type")),
    }
}

/// Decodes an answer like arguments, or returns what is wrong with it.
pub(crate) fn decode_answer<T: DeserializeOwned>(text: &str, contract: &Contract) -> Result<T, String> {
    decode_arguments(text, contract, Mode::default()).map(|(answer, _)| answer).map_err(|error| {
        // Those who answer do not know of arguments.
        let error = error.to_string();
        error.strip_prefix("invalid arguments: ").unwrap_or(&error).to_owned()
    })
}

/// A value that answers a question of the type `T`: one of the type, or a `&str` for a `String`. The
/// [choices](crate::signatures::PendingQuestion::choices) and the [default](crate::signatures::PendingQuestion::default) of a question are such values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer a question whose answer is a `{T}`",
    label = "not a `{T}`",
    note = "pass values of the type that the question returns; `choices_with_labels` takes a text beside each"
)]
pub trait IntoAnswer<T> {
    /// Converts the value into the answer.
    fn into_answer(self) -> T;
}

impl<T> IntoAnswer<T> for T {
    fn into_answer(self) -> T {
        self
    }
}

impl IntoAnswer<String> for &str {
    fn into_answer(self) -> String {
        self.to_owned()
    }
}
