//! What a model is told of a tool.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::StrictError;
use crate::schema::strict_form;

/// What a model is told of one tool: its name, what it does, and the JSON Schema of its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    parameters: Value,
    #[serde(default, skip_serializing_if = "ToolPolicy::is_default")]
    policy: ToolPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
    #[serde(default, rename = "strict", skip_serializing_if = "std::ops::Not::not")]
    is_strict: bool,
    /// Why it is not strict, though it was asked to be.
    #[serde(skip)]
    refusal: Option<String>,
}

/// How the run deals with the calls of a tool.
///
/// ```
/// use tool_core::{ToolDefinition, ToolPolicy};
///
/// let mut policy = ToolPolicy::default();
/// policy.needs_approval = true;
/// let delete = ToolDefinition::new("delete_account", "Deletes the account").with_policy(policy);
/// assert!(delete.policy().needs_approval);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolPolicy {
    /// Whether what the tool gives back is the answer, so that the model is not asked again.
    #[serde(skip_serializing_if = "ReturnDirect::is_never")]
    pub return_direct: ReturnDirect,
    /// A person has to approve each call before it is made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Its calls are made one by one, and never beside another call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// A call of which the outcome was lost is not made again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_most_once: bool,
    /// The same arguments always give the same output and change nothing, so the output of an earlier call of the
    /// run may stand for a later one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pure: bool,
    /// How often one call is made, at most, as long as it fails or takes too long; 0 is 1.
    #[serde(skip_serializing_if = "is_one")]
    pub attempts: u32,
}

/// Whether what a tool gives back is the answer of the run, so that the model is not asked again. A call that failed
/// never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReturnDirect {
    /// The model reads it and goes on.
    #[default]
    Never,
    /// It is if every call of the turn returns directly and none failed.
    IfAll,
    /// It is also if the last call of the turn returns directly and none of the turn failed.
    IfLast,
    /// It is, whatever else was called in the turn: the tool ends the run.
    Always,
}

impl ReturnDirect {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_one(attempts: &u32) -> bool {
    *attempts == 1
}

impl ToolPolicy {
    /// Nothing out of the ordinary.
    pub(crate) const DEFAULT: Self = Self {
        return_direct: ReturnDirect::Never,
        needs_approval: false,
        exclusive: false,
        at_most_once: false,
        pure: false,
        attempts: 1,
    };

    fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ToolDefinition {
    /// A tool without parameters; [`with_parameters`](Self::with_parameters) gives it some. A blank
    /// description is none.
    ///
    /// ```
    /// use tool_core::ToolDefinition;
    ///
    /// let definition = ToolDefinition::new("now", "Tells the time");
    /// assert_eq!(definition.parameters()["type"], "object");
    /// ```
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let description = Some(description.into()).filter(|text: &String| !text.trim().is_empty());
        Self::from_parts(name.into(), description, no_parameters())
    }

    pub(crate) fn from_parts(name: String, description: Option<String>, parameters: Value) -> Self {
        Self {
            name,
            description,
            parameters,
            policy: ToolPolicy::DEFAULT,
            undo: None,
            is_strict: false,
            refusal: None,
        }
    }

    /// The same tool with the JSON Schema of its arguments, an object schema. It is not
    /// [strict](Self::into_strict).
    #[must_use]
    pub fn with_parameters(mut self, parameters: Value) -> Self {
        self.parameters = parameters;
        self.is_strict = false;
        self
    }

    /// The same tool in the strict form that OpenAI's structured outputs ask for: the provider then holds the
    /// model to the schema, letter by letter.
    ///
    /// Every object is closed and has all of its properties: for what may be left out the model gives `null`, which the
    /// tool reads as if it were absent. What strict mode has no word for, such as `maxLength` or `default`, is told
    /// in descriptions. [`ToolSet::strict`](crate::ToolSet::strict) does this for all tools of a set, and takes such a
    /// `null` out of the arguments before the tool sees them.
    ///
    /// ```
    /// use serde_json::json;
    /// use tool_core::ToolDefinition;
    ///
    /// let definition = ToolDefinition::new("stay", "Books a hotel").with_parameters(json!({
    ///     "type": "object",
    ///     "properties": { "nights": { "type": "integer", "default": 1 } },
    /// }));
    /// let strict = definition.into_strict()?;
    /// assert!(strict.is_strict());
    /// let nights = &strict.parameters()["properties"]["nights"];
    /// assert_eq!(*nights, json!({ "type": ["integer", "null"], "description": "`null` means 1." }));
    /// # Ok::<_, tool_core::StrictError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Strict mode cannot say what the tool takes: an object with names of any kind, a choice at the top, a value of any
    /// type, too many levels or properties. The error names the tool and the place.
    #[inline]
    pub fn into_strict(mut self) -> Result<Self, StrictError> {
        if !self.is_strict {
            match strict_form(&self.parameters) {
                Ok(form) => self.parameters = form,
                Err(unsupported) => return Err(StrictError::new(self.name, unsupported)),
            }
            self.is_strict = true;
        }
        Ok(self)
    }

    /// The strict form, or the same with the reason why there is none: a set with it is refused.
    #[inline]
    pub(crate) fn into_strict_or_refused(self) -> Self {
        match self.clone().into_strict() {
            Ok(strict) => strict,
            Err(error) => Self { refusal: Some(error.to_string()), ..self },
        }
    }

    /// Why there is no strict form, though the tool asks for it.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The parameters are in [strict form](Self::into_strict), and a provider is asked to hold the model to them.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The same tool by another name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same tool with how the run deals with its calls.
    #[must_use]
    pub fn with_policy(mut self, policy: ToolPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How the run deals with its calls.
    #[must_use]
    pub fn policy(&self) -> ToolPolicy {
        self.policy
    }

    /// The same tool with the name of another that undoes what it did: if the run fails, the calls that were made are
    /// undone in reverse order.
    #[must_use]
    pub fn with_undo(mut self, tool: impl Into<String>) -> Self {
        self.undo = Some(tool.into());
        self
    }

    /// The name of the tool that undoes what this one did.
    #[must_use]
    pub fn undo(&self) -> Option<&str> {
        self.undo.as_deref()
    }

    /// The name that the model calls it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does, in words for the model.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The JSON Schema (draft 2020-12) of the arguments, an object schema.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }
}

fn no_parameters() -> Value {
    json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false })
}

/// The definitions of a set of tools, in order: cheap to clone, and the place where a provider keeps
/// what it made of them.
///
/// Every request of a run carries the same `ToolDefinitions`, so a provider turns them into its wire
/// format once, through [`encoded`](Self::encoded), and not once per turn.
#[derive(Clone, Default)]
pub struct ToolDefinitions(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Vec<ToolDefinition>,
    encodings: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl ToolDefinitions {
    /// What a provider made of the definitions: `encode` runs the first time that this type is asked
    /// for, later calls give the same value. So it must follow from the definitions and the type alone:
    /// what depends on settings takes a type per setting.
    ///
    /// ```
    /// use tool_core::{ToolDefinition, ToolDefinitions};
    ///
    /// struct Names(String);
    ///
    /// let definitions = ToolDefinitions::from_iter([ToolDefinition::new("now", "Tells the time")]);
    /// let names = definitions.encoded(|list| Names(list[0].name().to_owned()));
    /// assert_eq!(names.0, "now");
    /// let again = definitions.encoded::<Names>(|_| unreachable!("it is made once"));
    /// assert_eq!(again.0, "now");
    /// ```
    pub fn encoded<T: Any + Send + Sync>(&self, encode: impl FnOnce(&[ToolDefinition]) -> T) -> Arc<T> {
        if let Some(encoding) = self.encoding() {
            return encoding;
        }
        // Made without the lock, as `encode` may ask for another encoding.
        let made = Arc::new(encode(&self.0.list));
        let mut encodings = self.encodings();
        match encodings.get(&TypeId::of::<T>()).and_then(|any| Arc::clone(any).downcast().ok()) {
            Some(earlier) => earlier,
            None => {
                encodings.insert(TypeId::of::<T>(), Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
                made
            }
        }
    }

    fn encoding<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.encodings().get(&TypeId::of::<T>())?).downcast().ok()
    }

    fn encodings(&self) -> MutexGuard<'_, HashMap<TypeId, Arc<dyn Any + Send + Sync>>> {
        // A poisoned lock only says that a thread panicked: the map itself is whole.
        self.0.encodings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for ToolDefinitions {
    type Target = [ToolDefinition];

    fn deref(&self) -> &[ToolDefinition] {
        &self.0.list
    }
}

impl FromIterator<ToolDefinition> for ToolDefinitions {
    fn from_iter<I: IntoIterator<Item = ToolDefinition>>(definitions: I) -> Self {
        let list = definitions.into_iter().collect();
        Self(Arc::new(Shared { list, encodings: Mutex::default() }))
    }
}

impl PartialEq for ToolDefinitions {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl fmt::Debug for ToolDefinitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(ToolDefinition::name)).finish()
    }
}
