//! The form of a schema that OpenAI's strict mode enforces: a subset of JSON Schema in which every object is closed, every
//! property is required, and optional properties are nullable instead.
//!
//! Constraints that strict mode does not support are moved to descriptions for the model where possible. All others are an
//! error with the path. The schema may be untrusted: references are never expanded, and all work is bounded.

mod containers;
mod description;
mod kinds;
mod limits;
mod node;
mod references;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use serde_json::{Map, Value, json};

use self::description::Description;
use self::kinds::ValueKind;
use self::limits::Limits;
use self::node::Node;
use crate::schema::Choices;

/// The maximum nesting depth of schemas of any kind, which protects the stack.
const MAX_DEPTH: usize = 64;

/// The maximum number of characters of a name in a path.
const MAX_NAME_CHARS: usize = 64;

/// Something in a schema that strict mode does not support.
#[derive(Debug, PartialEq)]
pub(crate) struct Unsupported {
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path, self.reason)
    }
}

/// Returns the strict form of a tool's parameters.
/// Fails if strict mode does not support the schema, or if it is too large.
pub(crate) fn strict_form(schema: &Value) -> Result<Value, Unsupported> {
    let mut writer = Writer {
        root: schema,
        choices: Choices::new(schema),
        path: "$".into(),
        limits: Limits::default(),
        referenced: BTreeSet::new(),
        pending: VecDeque::new(),
    };
    let node = writer.arguments()?;
    let mut form = writer.write(&node, Position::TOP)?;
    let definitions = writer.definitions()?;
    if !definitions.is_empty() {
        form.insert("$defs".into(), definitions.into());
    }
    Ok(form.into())
}

type Form = Map<String, Value>;

/// The position of a schema.
#[derive(Clone, Copy)]
struct Position {
    /// The number of enclosing schemas.
    depth: usize,
    /// The number of objects and lists that enclose the value.
    level: usize,
    /// The value is optional; the model writes `null` to omit it.
    is_optional: bool,
}

impl Position {
    const TOP: Self = Self { depth: 0, level: 0, is_optional: false };

    /// Returns the position of an alternative for the same value.
    fn alternative(self) -> Self {
        Self { depth: self.depth + 1, is_optional: false, ..self }
    }

    /// Returns the position of a nested value.
    fn nested(self, is_optional: bool) -> Self {
        Self { depth: self.depth + 1, level: self.level + 1, is_optional }
    }
}

struct Writer<'s> {
    root: &'s Value,
    choices: Choices<'s>,
    path: String,
    limits: Limits,
    /// The names of the referenced definitions.
    referenced: BTreeSet<String>,
    /// The names of the referenced definitions that are still to be written.
    pending: VecDeque<String>,
}

impl<'s> Writer<'s> {
    /// Fails at the current path.
    fn refuse<T>(&self, reason: impl Into<String>) -> Result<T, Unsupported> {
        Err(Unsupported { path: self.path.clone(), reason: reason.into() })
    }

    /// Adds the current path to an error.
    fn checked<T>(&self, result: Result<T, String>) -> Result<T, Unsupported> {
        result.or_else(|reason| self.refuse(reason))
    }

    /// Counts something towards the limits.
    fn count(&mut self, count: impl FnOnce(&mut Limits) -> Result<(), String>) -> Result<(), Unsupported> {
        let counted = count(&mut self.limits);
        self.checked(counted)
    }

    /// Writes something one step further down the path.
    fn at<T>(
        &mut self,
        step: &str,
        write: impl FnOnce(&mut Self) -> Result<T, Unsupported>,
    ) -> Result<T, Unsupported> {
        let length = self.path.len();
        self.path.push('.');
        self.path.extend(step.chars().take(MAX_NAME_CHARS));
        let written = write(self)?;
        self.path.truncate(length);
        Ok(written)
    }

    /// Returns the keywords of a schema.
    fn object<'v>(&self, schema: &'v Value) -> Result<&'v Map<String, Value>, Unsupported> {
        match schema {
            Value::Object(schema) => Ok(schema),
            Value::Bool(true) => self.refuse(kinds::ANYTHING),
            Value::Bool(false) => self.refuse("no value is valid here; remove the schema"),
            _ => self.refuse("a schema must be an object"),
        }
    }

    fn write_schema(&mut self, schema: &'s Value, position: Position) -> Result<Value, Unsupported> {
        let node = self.checked(Node::new(self.object(schema)?))?;
        Ok(self.write(&node, position)?.into())
    }

    fn write(&mut self, node: &Node<'s>, position: Position) -> Result<Form, Unsupported> {
        if position.depth > MAX_DEPTH {
            return self.refuse(format!(
                "schemas may be nested at most {MAX_DEPTH} levels deep; flatten the schema"
            ));
        }
        self.count(Limits::schema)?;
        let mut description = self.checked(Description::new(node))?;
        let choices = ["anyOf", "oneOf"].map(|keyword| Some((keyword, node.get(keyword)?)));
        let (form, is_nullable) = match (node.get("$ref"), choices) {
            (Some(reference), [None, None]) => self.write_reference(reference, node, position)?,
            (None, [Some((keyword, choices)), None] | [None, Some((keyword, choices))]) => {
                self.write_choices(keyword, choices, node, position)?
            }
            (None, [None, None]) => self.write_kinds(node, &mut description, position)?,
            _ => return self.refuse("strict mode does not support combining `$ref`, `anyOf` and `oneOf`"),
        };
        description.add_default(node.get("default"), position.is_optional && !is_nullable);
        self.add_description(form, description)
    }

    /// Adds a description in front of the existing one.
    fn add_description(&mut self, mut form: Form, mut description: Description) -> Result<Form, Unsupported> {
        if description.is_empty() {
            return Ok(form);
        }
        // A reference must not have other keywords beside it.
        if form.contains_key("$ref") {
            form = Form::from_iter([("anyOf".into(), json!([form]))]);
        }
        description.add(form.get("description").and_then(Value::as_str).unwrap_or_default());
        let description = description.into_text();
        self.count(|limits| limits.text(&description))?;
        form.insert("description".into(), description.into());
        Ok(form)
    }

    /// Writes alternatives. Also returns whether the original schema allows `null`.
    fn write_choices(
        &mut self,
        keyword: &str,
        choices: &'s Value,
        node: &Node<'s>,
        position: Position,
    ) -> Result<(Form, bool), Unsupported> {
        let Some(list) = choices.as_array().filter(|list| !list.is_empty()) else {
            return self.refuse(format!("`{keyword}` must be a list of schemas"));
        };
        let mut forms = Vec::new();
        let mut has_null = node.is_nullable();
        for (index, choice) in list.iter().enumerate() {
            let is_null = choice.get("type").is_some_and(|name| name == "null");
            if is_null || *choice == Value::Bool(false) {
                // `null` is not an alternative if the schema around the alternatives requires a type.
                has_null |= is_null && !node.has_constraints();
                continue;
            }
            let form = self.at(&format!("{keyword}[{index}]"), |this| {
                let inner = this.checked(node.alternative(this.object(choice)?))?;
                this.write(&inner, position.alternative())
            })?;
            match form.get("anyOf").and_then(Value::as_array) {
                Some(inner) if form.len() == 1 => forms.extend(inner.iter().cloned()),
                _ => forms.push(form.into()),
            }
        }
        let null = json!({ "type": "null" });
        let is_nullable = has_null || self.choices.allow_null(list);
        if (has_null || position.is_optional && !is_nullable) && !forms.contains(&null) {
            forms.push(null);
        }
        match forms.len() {
            0 => self.refuse(format!("no value is valid for any of `{keyword}`")),
            1 => Ok((self.object(&forms[0])?.clone(), is_nullable)),
            _ => Ok((Form::from_iter([("anyOf".into(), forms.into())]), is_nullable)),
        }
    }

    /// Writes a value of one of the types of the schema. Also returns whether the original schema allows `null`.
    fn write_kinds(
        &mut self,
        node: &Node<'s>,
        description: &mut Description,
        position: Position,
    ) -> Result<(Form, bool), Unsupported> {
        let (kinds, has_null) = self.checked(kinds::kinds(node))?;
        let is_nullable = has_null || node.is_nullable();
        let values = self.checked(kinds::values(node))?;
        let mut forms = Vec::new();
        for kind in kinds {
            match &values {
                Some(values) => forms.extend(self.write_values(kind, values, node)?),
                None => forms.push(self.write_kind(kind, node, description, position)?),
            }
        }
        let allows_null = is_nullable || position.is_optional;
        let form = match forms.len() {
            0 if has_null => Form::from_iter([("type".into(), "null".into())]),
            0 => return self.refuse("no value of `enum` has the required type"),
            1 if allows_null => self.or_null(forms.remove(0))?,
            1 => forms.remove(0),
            _ => {
                let null = allows_null.then(|| json!({ "type": "null" }));
                let forms: Vec<_> = forms.into_iter().map(Value::Object).chain(null).collect();
                Form::from_iter([("anyOf".into(), forms.into())])
            }
        };
        Ok((form, is_nullable))
    }

    /// Writes a value of one type.
    fn write_kind(
        &mut self,
        kind: ValueKind,
        node: &Node<'s>,
        description: &mut Description,
        position: Position,
    ) -> Result<Form, Unsupported> {
        match kind {
            ValueKind::Object => self.write_object(node, description, position),
            ValueKind::List => self.write_list(node, description, position),
            ValueKind::Text => {
                let form = self.checked(kinds::text(node, description))?;
                let pattern = form.get("pattern").and_then(Value::as_str).unwrap_or_default();
                self.count(|limits| limits.text(pattern))?;
                Ok(form)
            }
            ValueKind::Number | ValueKind::Integer => self.checked(kinds::number(kind, node)),
            ValueKind::Boolean => Ok(kind.form()),
        }
    }

    /// Writes the values of `enum` and `const` that have a type, if there are any.
    fn write_values(
        &mut self,
        kind: ValueKind,
        values: &[&Value],
        node: &Node<'s>,
    ) -> Result<Option<Form>, Unsupported> {
        let values: Vec<_> = values.iter().copied().filter(|value| kind.matches(value)).collect();
        let Some(first) = values.first() else { return Ok(None) };
        let mut form = kind.form();
        if node.get("const").is_some() {
            self.count(|limits| limits.constant(first))?;
            form.insert("const".into(), (*first).clone());
        } else {
            self.count(|limits| limits.enum_values(&values))?;
            form.insert("enum".into(), values.into_iter().cloned().collect());
        }
        Ok(Some(form))
    }

    /// Makes a form nullable.
    fn or_null(&mut self, mut form: Form) -> Result<Form, Unsupported> {
        if let Some(name) = form.get_mut("type") {
            *name = json!([name, "null"]);
        }
        if let Some(value) = form.remove("const") {
            form.insert("enum".into(), json!([value]));
            self.count(|limits| limits.enum_values(&[&value]))?;
        }
        if let Some(values) = form.get_mut("enum").and_then(Value::as_array_mut) {
            values.push(Value::Null);
            self.count(|limits| limits.enum_values(&[&Value::Null]))?;
        }
        Ok(form)
    }
}
