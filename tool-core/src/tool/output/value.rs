//! The conversion of returned values into outputs.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use super::tool_output::{ToolOutput, no_json};
use crate::content::{Content, File, Image};
use crate::tool::ToolError;

/// A value that a `#[tool]` function can return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "must implement `serde::Serialize` and own its data",
    note = "for a type of your own, add `#[derive(serde::Serialize)]`",
    note = "instead of returning a future, write `async fn`"
)]
pub trait ToolReturn: Sized {
    /// Converts the value into an output.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + 'static> ToolReturn for T {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        // These conditions are known at compile time, so each type has only the code of one branch.
        if is_verbatim::<T>() {
            let mut value = Some(self);
            return verbatim(&mut value).map_or_else(|| json_output(serde_json::to_string(&value)), Ok);
        }
        json_output(serde_json::to_string(&self))
    }
}

#[diagnostic::do_not_recommend]
impl ToolReturn for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

#[diagnostic::do_not_recommend]
impl ToolReturn for File {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self.into())
    }
}

#[diagnostic::do_not_recommend]
impl ToolReturn for Image {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::image(self))
    }
}

/// Returns `true` if some values of the type are not sent as JSON.
#[inline]
fn is_verbatim<T: 'static>() -> bool {
    let ids = [
        TypeId::of::<String>(),
        TypeId::of::<Content>(),
        TypeId::of::<&'static str>(),
        TypeId::of::<Cow<'static, str>>(),
        TypeId::of::<Box<str>>(),
        TypeId::of::<Arc<str>>(),
        TypeId::of::<f64>(),
        TypeId::of::<f32>(),
        TypeId::of::<()>(),
    ];
    ids.contains(&TypeId::of::<T>())
}

/// Returns the output of a value that is not sent as JSON. `value` is an `Option` that contains it.
///
/// Not generic, so that it is compiled once rather than per return type.
fn verbatim(value: &mut dyn Any) -> Option<ToolOutput> {
    fn take<T: 'static>(value: &mut dyn Any) -> Option<T> {
        value.downcast_mut::<Option<T>>()?.take()
    }
    if let Some(content) = take::<Content>(value) {
        return Some(content.into());
    }
    let text = take::<String>(value)
        .or_else(|| take::<&'static str>(value).map(Into::into))
        .or_else(|| take::<Cow<'static, str>>(value).map(Into::into))
        .or_else(|| take::<Box<str>>(value).map(Into::into))
        .or_else(|| take::<Arc<str>>(value).map(|text| (*text).to_owned()));
    if let Some(text) = text {
        return Some(ToolOutput::text(text));
    }
    if let Some(number) = float(value).filter(|number| !number.is_finite()) {
        // JSON cannot express it, and serde_json would write `null`.
        let text = if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return Some(ToolOutput::text(text));
    }
    value.is::<Option<()>>().then(|| ToolOutput::text("Success"))
}

fn float(value: &dyn Any) -> Option<f64> {
    match value.downcast_ref::<Option<f64>>() {
        Some(number) => *number,
        None => value.downcast_ref::<Option<f32>>()?.map(f64::from),
    }
}

fn json_output(json: serde_json::Result<String>) -> Result<ToolOutput, ToolError> {
    match json {
        Ok(json) => Ok(ToolOutput::text(json)),
        Err(error) => Err(no_json(&error)),
    }
}
