//! Definitions of tools as the model reads them, and the policies of their calls.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::setters::setters;
use crate::model::StrictError;
use crate::schema::strict_form;

/// The definition of a tool that is sent to the model: its name, its description, and the JSON Schema of its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct ToolDefinition {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    parameters: Value,
    #[serde(default, skip_serializing_if = "ToolPolicy::is_default")]
    policy: ToolPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
    /// What an approval is bound to beside the other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details_hash: Option<String>,
    /// Not serialized, because an approval is bound to the serialized form.
    #[serde(skip)]
    approval_reason: Option<Arc<str>>,
    #[serde(default, rename = "strict", skip_serializing_if = "std::ops::Not::not")]
    is_strict: bool,
    /// Not serialized, because an approval is bound to the serialized form.
    #[serde(skip)]
    is_deferred: bool,
    /// The error of creating the strict form, if one was requested.
    #[serde(skip)]
    strict_error: Option<String>,
    /// Not serialized, because an approval is bound to the serialized form.
    #[serde(skip)]
    kind: ToolKind,
    /// That of the whole definition, if this one has only what the rules of a run need.
    #[serde(skip)]
    known_hash: Option<String>,
}

/// What a call of a tool is to a run. The run copies it into the record of each call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// The tool is executed.
    #[default]
    Function,
    /// The call asks an [agent](crate::Agent::as_tool), whose run belongs to the call's run.
    Agent,
    /// The caller of the run executes the call, for example in a user's browser, and the tool itself is never called. A run
    /// [waits](crate::run::WaitReason::CallerResult) for the result, whose [origin](crate::tool::OutcomeOrigin) is always `External`.
    Caller,
    /// A call that succeeds hands the run over to [another agent](crate::agent::AgentBuilder::handoff_to).
    Handoff,
    /// The tool [searches](crate::agent::AgentBuilder::tool_search) other tools.
    Search,
    /// A call of the tool stands for a call of the tool that its arguments name. The run sees the latter.
    CallThrough,
}

/// The policy by which a run executes the calls of a tool.
///
/// ```
/// use tool_core::model::{ToolDefinition, ToolPolicy};
///
/// let policy = ToolPolicy::default().with_needs_approval(true).with_attempts(3);
/// let delete = ToolDefinition::new("delete_account").with_policy(policy);
/// assert!(delete.policy().needs_approval);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct ToolPolicy {
    /// The condition under which the tool's output is the answer of the run.
    #[serde(skip_serializing_if = "ReturnDirect::is_never")]
    pub return_direct: ReturnDirect,
    /// A person must approve each call before it is executed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Calls of the tool never run concurrently with any other call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// A call whose outcome is unknown is not executed again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_most_once: bool,
    /// The tool always returns the same output for the same arguments and has no side effects, so the output of an earlier
    /// call in the run can be reused for a later one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pure: bool,
    /// A [compaction](crate::agent::Compaction) does not hide the tool's outputs alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_output: bool,
    /// The maximum number of times that a call is executed while it fails or times out. 0 means 1.
    #[serde(skip_serializing_if = "is_one")]
    pub attempts: u32,
}

/// The condition under which a tool's output is the answer of the run, so that no further request is sent to the model. The
/// error of a call never is the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReturnDirect {
    /// The model reads the output and continues.
    #[default]
    Never,
    /// The output is the answer if every call of the turn returns directly and none failed.
    IfAll,
    /// As `IfAll`, and also if the last call of the turn returns directly and no call of the turn failed.
    IfLast,
    /// The output is always the answer, whatever else was called in the turn: the tool ends the run.
    Always,
}

/// `true` is [`ReturnDirect::IfAll`], as the option `return_direct` of `#[tool]` without a value.
impl From<bool> for ReturnDirect {
    fn from(returns_direct: bool) -> Self {
        if returns_direct { Self::IfAll } else { Self::Never }
    }
}

impl ReturnDirect {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_one(attempts: &u32) -> bool {
    *attempts == 1
}

impl ToolPolicy {
    /// The default policy.
    pub(crate) const DEFAULT: Self = Self {
        return_direct: ReturnDirect::Never,
        needs_approval: false,
        exclusive: false,
        at_most_once: false,
        pure: false,
        keep_output: false,
        attempts: 1,
    };

    fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }

    /// Returns the stricter of two policies in each respect. It applies to a call that was requested under one policy and is
    /// executed under another. What restricts nothing, [`return_direct`](Self::return_direct), is taken from `self`.
    pub(crate) fn stricter(&self, other: &Self) -> Self {
        Self {
            return_direct: self.return_direct,
            needs_approval: self.needs_approval || other.needs_approval,
            exclusive: self.exclusive || other.exclusive,
            at_most_once: self.at_most_once || other.at_most_once,
            pure: self.pure && other.pure,
            keep_output: self.keep_output || other.keep_output,
            attempts: self.attempts.min(other.attempts),
        }
    }
}

setters! {
    ToolPolicy {
        /// Returns this policy with the condition under which the output is the answer of the run.
        with_return_direct(return_direct: impl Into<ReturnDirect>) return_direct = return_direct.into();
        /// Returns this policy with or without the approval of each call.
        with_needs_approval(needs_approval: bool) needs_approval = needs_approval;
        /// Returns this policy for calls that do or do not run alone.
        with_exclusive(exclusive: bool) exclusive = exclusive;
        /// Returns this policy for calls that are or are not executed again if their outcome is unknown.
        with_at_most_once(at_most_once: bool) at_most_once = at_most_once;
        /// Returns this policy for a tool that is or is not pure.
        with_pure(pure: bool) pure = pure;
        /// Returns this policy for a tool whose outputs are or are not kept by compactions.
        with_keep_output(keep_output: bool) keep_output = keep_output;
        /// Returns this policy with the maximum number of attempts.
        with_attempts(attempts: u32) attempts = attempts;
    }
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

setters! {
    ToolDefinition {
        /// Returns this definition for a tool that the model finds by [search](crate::agent::AgentBuilder::tool_search) and is not
        /// offered before. Without search, it is offered like all others.
        with_deferred(is_deferred: bool) is_deferred = is_deferred;
        /// Returns this definition with another name.
        with_name(name: impl Into<String>) name = name.into();
        /// Returns this definition with a policy for its calls.
        with_policy(policy: ToolPolicy) policy = policy;
        /// Returns this definition for a tool of another kind. A wrapper of a tool has the kind of that tool.
        with_kind(kind: ToolKind) kind = kind;
        /// Returns this definition with the reason why its calls [need approval](ToolPolicy::needs_approval), and the way to avoid
        /// that. The error of a run whose calls await approval contains it.
        with_approval_reason(reason: impl Into<Arc<str>>) approval_reason = Some(reason.into());
        /// Returns this definition with a hash of what people rely on beside it, such as annotations that another program states: an
        /// approval is bound to it, too. Models do not read it.
        with_details_hash(hash: impl Into<String>) details_hash = Some(hash.into());
        /// Returns this definition with the name of the tool that undoes its calls. If a run fails, its executed calls are
        /// undone in reverse order.
        with_undo(tool: impl Into<String>) undo = Some(tool.into());
    }
}

impl ToolDefinition {
    /// Creates the definition of a tool without a description and parameters.
    ///
    /// ```
    /// use tool_core::model::ToolDefinition;
    ///
    /// let definition = ToolDefinition::new("now").with_description("Returns the time");
    /// assert_eq!(definition.description(), Some("Returns the time"));
    /// assert_eq!(definition.parameters()["type"], "object");
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self::from_parts(name.into(), None, no_parameters())
    }

    pub(crate) fn from_parts(name: String, description: Option<String>, parameters: Value) -> Self {
        Self {
            name,
            description,
            parameters,
            policy: ToolPolicy::DEFAULT,
            undo: None,
            details_hash: None,
            approval_reason: None,
            is_strict: false,
            is_deferred: false,
            strict_error: None,
            kind: ToolKind::Function,
            known_hash: None,
        }
    }

    /// Returns this definition with a description for the model. A blank one counts as none.
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into()).filter(|text| !text.trim().is_empty());
        self
    }

    /// Returns this definition with the JSON Schema of the arguments, an object schema. It is not
    /// [strict](Self::into_strict).
    pub fn with_parameters(mut self, parameters: Value) -> Self {
        self.parameters = parameters;
        self.is_strict = false;
        self
    }

    /// Converts the parameters into the strict form of OpenAI's structured outputs, which the provider strictly enforces
    /// on the model.
    ///
    /// Every object is closed and requires all of its properties: the model writes `null` for an optional one, which the
    /// tool treats as absent. Keywords that strict mode does not support, such as `maxLength` or `default`, are written
    /// into descriptions. [`ToolSet::strict`](crate::ToolSet::strict) does this for all tools of a set, and removes such a
    /// `null` from the arguments before the tool sees them.
    ///
    /// ```
    /// use serde_json::json;
    /// use tool_core::model::ToolDefinition;
    ///
    /// let definition = ToolDefinition::new("stay").with_parameters(json!({
    ///     "type": "object",
    ///     "properties": { "nights": { "type": "integer", "default": 1 } },
    /// }));
    /// let strict = definition.into_strict()?;
    /// assert!(strict.is_strict());
    /// let nights = &strict.parameters()["properties"]["nights"];
    /// assert_eq!(*nights, json!({ "type": ["integer", "null"], "description": "`null` means 1." }));
    /// # Ok::<_, tool_core::provider::StrictError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if strict mode cannot express the parameters: an object with arbitrary names, a choice at the root,
    /// a value of any type, or too many levels or properties. The error names the tool and the path.
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

    /// Converts the parameters into strict form, or stores the error, so that a set with this definition is refused.
    pub(crate) fn into_strict_or_error(self) -> Self {
        match self.clone().into_strict() {
            Ok(strict) => strict,
            Err(error) => Self { strict_error: Some(error.to_string()), ..self },
        }
    }

    /// Returns the error of creating the strict form, if one was requested.
    pub(crate) fn strict_error(&self) -> Option<&str> {
        self.strict_error.as_deref()
    }

    /// Returns `true` if the parameters are in [strict form](Self::into_strict), which the provider enforces.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns `true` if the model is not offered the tool before it has found it by search.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Returns the policy for its calls.
    pub fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    /// Returns the kind of the tool. It is not part of the serialized form and of the [hash](Self::hash).
    #[must_use]
    pub fn kind(&self) -> ToolKind {
        self.kind
    }

    /// Returns the reason why its calls need approval, if they do and the reason is known.
    #[must_use]
    pub fn approval_reason(&self) -> Option<&str> {
        self.approval_reason.as_deref().filter(|_| self.policy.needs_approval)
    }

    /// Sets the hash of the whole definition, for one that has only what the rules of a run need.
    pub fn with_known_hash(mut self, hash: impl Into<String>) -> Self {
        self.known_hash = Some(hash.into());
        self
    }

    /// Returns the name of the tool that undoes the calls of this one.
    #[must_use]
    pub fn undo(&self) -> Option<&str> {
        self.undo.as_deref()
    }

    /// Returns the name by which the model calls the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description for the model.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns a hash of the definition, to which the approval of a call is bound. The order of the members in the schema does
    /// not affect it, because a server may list them in any order.
    #[must_use]
    pub fn hash(&self) -> String {
        if let Some(hash) = &self.known_hash {
            return hash.clone();
        }
        // A definition can always be serialized.
        let mut definition = serde_json::to_value(self).unwrap_or_default();
        definition.sort_all_objects();
        Sha256::digest(definition.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the JSON Schema (draft 2020-12) of the arguments, an object schema.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// Returns the part of the definition that models read, as a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = json!({ "name": self.name });
        if let Some(description) = &self.description {
            json["description"] = Value::from(&**description);
        }
        json["parameters"] = self.parameters.clone();
        json
    }

    #[cfg(feature = "dynamic")]
    pub(crate) fn into_parameters(self) -> Value {
        self.parameters
    }
}

fn no_parameters() -> Value {
    json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false })
}

/// The definitions of a set of tools, in order. Clones are cheap.
#[derive(Clone, Default)]
pub struct ToolDefinitions(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Vec<ToolDefinition>,
    /// What was derived from the list, by its type. Clones share it, so that each is derived once per set and not once per turn.
    encodings: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// The digests of definitions, by their names.
pub(crate) struct Digests(pub(crate) BTreeMap<String, String>);

/// The number of characters of a hash that tell a definition from its next version.
const DIGEST: usize = 16;

impl ToolDefinitions {
    /// Returns the beginnings of the hashes of the definitions, by their names.
    pub(crate) fn digests(&self) -> Arc<Digests> {
        let digest = |tool: &ToolDefinition| {
            let mut hash = tool.hash();
            hash.truncate(DIGEST);
            (tool.name.to_string(), hash)
        };
        self.encoded(|list| Digests(list.iter().map(digest).collect()))
    }

    /// Returns the encoding of type `T`. The first call for a type runs `encode`, and later calls return the same value.
    ///
    /// The value must depend only on the definitions and the type. An encoding that depends on settings needs one type per
    /// setting.
    ///
    /// ```
    /// use tool_core::model::ToolDefinition;
    /// use tool_core::provider::ToolDefinitions;
    ///
    /// struct Names(String);
    ///
    /// let definitions = ToolDefinitions::from_iter([ToolDefinition::new("now")]);
    /// let names = definitions.encoded(|list| Names(list[0].name().to_owned()));
    /// assert_eq!(names.0, "now");
    /// let again = definitions.encoded::<Names>(|_| unreachable!("the encoding is cached"));
    /// assert_eq!(again.0, "now");
    /// ```
    pub fn encoded<T: Any + Send + Sync>(&self, encode: impl FnOnce(&[ToolDefinition]) -> T) -> Arc<T> {
        let cached = self.encodings().get(&TypeId::of::<T>()).map(Arc::clone);
        if let Some(encoding) = cached.and_then(|cached| cached.downcast().ok()) {
            return encoding;
        }
        // Created without the lock, because `encode` can request another encoding.
        let encoding = Arc::new(encode(&self.0.list));
        let mut encodings = self.encodings();
        let first = encodings.entry(TypeId::of::<T>()).or_insert_with(|| Arc::clone(&encoding) as _);
        Arc::clone(first).downcast().unwrap_or(encoding)
    }

    fn encodings(&self) -> MutexGuard<'_, HashMap<TypeId, Arc<dyn Any + Send + Sync>>> {
        // A poisoned lock only means that a thread panicked; the map is intact.
        self.0.encodings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the tools, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.iter().map(ToolDefinition::name)
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

impl From<&ToolDefinitions> for ToolDefinitions {
    fn from(definitions: &ToolDefinitions) -> Self {
        definitions.clone()
    }
}

impl From<Vec<ToolDefinition>> for ToolDefinitions {
    fn from(list: Vec<ToolDefinition>) -> Self {
        Self::from_iter(list)
    }
}

impl<const N: usize> From<[ToolDefinition; N]> for ToolDefinitions {
    fn from(list: [ToolDefinition; N]) -> Self {
        Self::from_iter(list)
    }
}

impl<'a> IntoIterator for &'a ToolDefinitions {
    type Item = &'a ToolDefinition;
    type IntoIter = slice::Iter<'a, ToolDefinition>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.list.iter()
    }
}

impl PartialEq for ToolDefinitions {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl fmt::Debug for ToolDefinitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_policies_by_the_stricter_of_each_rule() {
        let one = ToolPolicy::default().with_needs_approval(true).with_pure(true).with_attempts(3);
        let other = ToolPolicy::default().with_at_most_once(true).with_exclusive(true).with_attempts(2);
        let expected = ToolPolicy::default()
            .with_needs_approval(true)
            .with_at_most_once(true)
            .with_exclusive(true)
            .with_attempts(2);
        assert_eq!((one.stricter(&other), other.stricter(&one)), (expected.clone(), expected));
    }
}
