//! The return types of functions and closures that are tools.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use serde::Serialize;
use serde_json::{Map, Value};

use super::returned::ToolFailure;
use super::tool_output::ToolOutput;
use super::value::ToolReturn;
use crate::tool::ToolError;

/// A value that a function or closure of a tool can return.
///
/// The model reads `()` as `Success`, text unchanged, and other values as JSON. Wrap your own types in [`Json`], or return
/// them as the `T` of a `Result<T, E>`, where `E` is a `String` or any error, including `anyhow::Error`. The model reads
/// the error and its sources.
///
/// Implement the trait for a type of your own that is not sent as JSON:
///
/// ```
/// use tool_core::signatures::IntoToolOutput;
/// use tool_core::{FunctionTool, ToolError, ToolOutput};
///
/// struct Degrees(f64);
///
/// impl IntoToolOutput for Degrees {
///     fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
///         Ok(ToolOutput::text(format!("{} °C", self.0)))
///     }
/// }
///
/// let tool = FunctionTool::new("temperature", || Degrees(22.5)).description("Returns the temperature");
/// # let _ = tool;
/// ```
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "does not implement `IntoToolOutput`",
    note = "for a type with `#[derive(serde::Serialize)]`, return `Json(value)`, or return it in a `Result<T, E>`"
)]
pub trait IntoToolOutput {
    /// Converts the value into an output.
    ///
    /// # Errors
    ///
    /// Returns an error if the tool failed or its value cannot be written as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError>;
}

/// A value that the model reads as JSON.
///
/// ```
/// use tool_core::tool::Json;
/// use tool_core::FunctionTool;
///
/// #[derive(serde::Serialize)]
/// struct Weather {
///     celsius: f64,
/// }
///
/// let tool = FunctionTool::new("weather", || Json(Weather { celsius: 22.5 })).description("Returns the weather");
/// # let _ = tool;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Json<T>(pub T);

impl<T: ToolReturn, E: ToolFailure> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        self.map_err(ToolFailure::into_error)?.into_output()
    }
}

macro_rules! impl_by_tool_return {
    ($([$($generic:ident),* $(; $hasher:ident)?] $type:ty,)*) => {$(
        impl<$($generic: Serialize + 'static,)* $($hasher: 'static)?> IntoToolOutput for $type {
            fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
                self.into_output()
            }
        }
    )*};
}

impl_by_tool_return! {
    [] (), [] bool, [] char, [] f32, [] f64,
    [] i8, [] i16, [] i32, [] i64, [] i128, [] isize,
    [] u8, [] u16, [] u32, [] u64, [] u128, [] usize,
    [] String, [] &'static str, [] Cow<'static, str>,
    [] ToolOutput, [] Value, [] Map<String, Value>,
    [T] Json<T>, [T] Option<T>, [T] Box<T>,
    [T] Vec<T>, [T] VecDeque<T>, [T] BTreeSet<T>, [T; S] HashSet<T, S>,
    [K, V] BTreeMap<K, V>, [K, V; S] HashMap<K, V, S>,
    [A] (A,), [A, B] (A, B), [A, B, C] (A, B, C), [A, B, C, D] (A, B, C, D),
    [A, B, C, D, E] (A, B, C, D, E), [A, B, C, D, E, F] (A, B, C, D, E, F),
}
