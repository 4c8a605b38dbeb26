//! The form of a schema that OpenAI's strict mode holds a model to: a subset of JSON Schema in which every object is
//! closed, every property is required, and what may be left out may be `null` instead.
//!
//! What strict mode has no word for, but the model can be told, goes into descriptions. What it cannot say at all is
//! refused with its place. The schema may be a stranger's: references are never expanded, and all work is bounded.

mod containers;
mod kinds;
mod limits;
mod node;
mod references;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use serde_json::{Map, Value, json};

use self::kinds::Kind;
use self::limits::Limits;
use self::node::Node;
use self::words::Words;
use crate::schema::Choices;

/// How deep schemas may stand in each other, of whatever kind: what is deeper would exhaust the stack.
const DEEPEST: usize = 64;

/// How many characters of a name are shown in a path.
const LONGEST_NAME: usize = 64;

/// Why a schema has no strict form, and where.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) path: String,
    pub(crate) why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path, self.why)
    }
}

/// The strict form of a tool's parameters.
///
/// # Errors
///
/// Strict mode cannot say it, or it is too large.
pub(crate) fn strict_form(schema: &Value) -> Result<Value, Refusal> {
    let mut writer = Writer {
        root: schema,
        choices: Choices::new(schema),
        path: "$".into(),
        limits: Limits::default(),
        referred: BTreeSet::new(),
        waiting: VecDeque::new(),
    };
    let node = writer.arguments()?;
    let mut form = writer.write(&node, Place::TOP)?;
    let definitions = writer.definitions()?;
    if !definitions.is_empty() {
        form.insert("$defs".into(), definitions.into());
    }
    Ok(form.into())
}

type Form = Map<String, Value>;

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Place {
    /// How many schemas are around it.
    depth: usize,
    /// How many objects and lists are around the value.
    level: usize,
    /// The value may be left out, which the model says with `null`.
    is_optional: bool,
}

impl Place {
    const TOP: Self = Self { depth: 0, level: 0, is_optional: false };

    /// The place of a schema about the same value.
    fn choice(self) -> Self {
        Self { depth: self.depth + 1, is_optional: false, ..self }
    }

    /// The place of a schema about a value in this one.
    fn inside(self, is_optional: bool) -> Self {
        Self { depth: self.depth + 1, level: self.level + 1, is_optional }
    }
}

struct Writer<'s> {
    root: &'s Value,
    choices: Choices<'s>,
    path: String,
    limits: Limits,
    /// The names of the definitions that were referred to, and those of them that are still to be written.
    referred: BTreeSet<String>,
    waiting: VecDeque<String>,
}

impl<'s> Writer<'s> {
    fn refuse<T>(&self, why: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal { path: self.path.clone(), why: why.into() })
    }

    fn checked<T>(&self, result: Result<T, String>) -> Result<T, Refusal> {
        result.or_else(|why| self.refuse(why))
    }

    /// Counts what is about to be written.
    fn count(&mut self, count: impl FnOnce(&mut Limits) -> Result<(), String>) -> Result<(), Refusal> {
        let counted = count(&mut self.limits);
        self.checked(counted)
    }

    /// Writes something that stands one step further down.
    fn at<T>(
        &mut self,
        step: &str,
        write: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let length = self.path.len();
        self.path.push('.');
        self.path.extend(step.chars().take(LONGEST_NAME));
        let written = write(self)?;
        self.path.truncate(length);
        Ok(written)
    }

    fn object<'v>(&self, schema: &'v Value) -> Result<&'v Map<String, Value>, Refusal> {
        match schema {
            Value::Object(words) => Ok(words),
            Value::Bool(true) => self.refuse(kinds::ANYTHING),
            Value::Bool(false) => self.refuse("no value is right here; leave it out"),
            _ => self.refuse("a schema must be an object"),
        }
    }

    fn write_schema(&mut self, schema: &'s Value, place: Place) -> Result<Value, Refusal> {
        let node = self.checked(Node::new(self.object(schema)?))?;
        Ok(self.write(&node, place)?.into())
    }

    fn write(&mut self, node: &Node<'s>, place: Place) -> Result<Form, Refusal> {
        if place.depth > DEEPEST {
            return self
                .refuse(format!("more than {DEEPEST} schemas in each other are too deep; make it flatter"));
        }
        self.count(Limits::schema)?;
        let mut words = self.checked(Words::of(node))?;
        let choices = ["anyOf", "oneOf"].map(|word| Some((word, node.get(word)?)));
        let (form, is_nullable) = match (node.get("$ref"), choices) {
            (Some(reference), [None, None]) => self.write_reference(reference, node, place)?,
            (None, [Some((word, choices)), None] | [None, Some((word, choices))]) => {
                self.write_choices(word, choices, node, place)?
            }
            (None, [None, None]) => self.write_kinds(node, &mut words, place)?,
            _ => return self.refuse("`$ref`, `anyOf` and `oneOf` exclude each other in strict mode"),
        };
        words.add_default(node.get("default"), place.is_optional && !is_nullable);
        self.describe(form, words)
    }

    /// Puts the words in front of what the form says already.
    fn describe(&mut self, mut form: Form, mut words: Words) -> Result<Form, Refusal> {
        if words.is_empty() {
            return Ok(form);
        }
        // Beside a reference no other word may stand.
        if form.contains_key("$ref") {
            form = Form::from_iter([("anyOf".into(), json!([form]))]);
        }
        words.add(form.get("description").and_then(Value::as_str).unwrap_or_default());
        let description = words.into_text();
        self.count(|limits| limits.text(&description))?;
        form.insert("description".into(), description.into());
        Ok(form)
    }

    /// One of several schemas; says also whether `null` was right before.
    fn write_choices(
        &mut self,
        word: &str,
        choices: &'s Value,
        node: &Node<'s>,
        place: Place,
    ) -> Result<(Form, bool), Refusal> {
        let Some(list) = choices.as_array().filter(|list| !list.is_empty()) else {
            return self.refuse(format!("`{word}` must be a list of schemas"));
        };
        let mut forms = Vec::new();
        let mut has_null = node.is_nullable();
        for (index, choice) in list.iter().enumerate() {
            let is_null = choice.get("type").is_some_and(|name| name == "null");
            if is_null || *choice == Value::Bool(false) {
                // If the whole must be of some type, `null` is no choice.
                has_null |= is_null && !node.has_bounds();
                continue;
            }
            let form = self.at(&format!("{word}[{index}]"), |this| {
                let inner = this.checked(node.choice(this.object(choice)?))?;
                this.write(&inner, place.choice())
            })?;
            match form.get("anyOf").and_then(Value::as_array) {
                Some(inner) if form.len() == 1 => forms.extend(inner.iter().cloned()),
                _ => forms.push(form.into()),
            }
        }
        let null = json!({ "type": "null" });
        let is_nullable = has_null || self.choices.admit_null(list);
        if (has_null || place.is_optional && !is_nullable) && !forms.contains(&null) {
            forms.push(null);
        }
        match forms.len() {
            0 => self.refuse(format!("no value is right for any of `{word}`")),
            1 => Ok((self.object(&forms[0])?.clone(), is_nullable)),
            _ => Ok((Form::from_iter([("anyOf".into(), forms.into())]), is_nullable)),
        }
    }

    /// A value of one of the types that the schema names; says also whether `null` was right before.
    fn write_kinds(
        &mut self,
        node: &Node<'s>,
        words: &mut Words,
        place: Place,
    ) -> Result<(Form, bool), Refusal> {
        let (kinds, has_null) = self.checked(kinds::of(node))?;
        let is_nullable = has_null || node.is_nullable();
        let values = self.checked(kinds::values(node))?;
        let mut forms = Vec::new();
        for kind in kinds {
            match &values {
                Some(values) => forms.extend(self.write_values(kind, values, node)?),
                None => forms.push(self.write_kind(kind, node, words, place)?),
            }
        }
        let may_be_null = is_nullable || place.is_optional;
        let form = match forms.len() {
            0 if has_null => Form::from_iter([("type".into(), "null".into())]),
            0 => return self.refuse("no value of `enum` is of the type that is asked for"),
            1 if may_be_null => self.or_null(forms.remove(0))?,
            1 => forms.remove(0),
            _ => {
                let null = may_be_null.then(|| json!({ "type": "null" }));
                let forms: Vec<_> = forms.into_iter().map(Value::Object).chain(null).collect();
                Form::from_iter([("anyOf".into(), forms.into())])
            }
        };
        Ok((form, is_nullable))
    }

    fn write_kind(
        &mut self,
        kind: Kind,
        node: &Node<'s>,
        words: &mut Words,
        place: Place,
    ) -> Result<Form, Refusal> {
        match kind {
            Kind::Object => self.write_object(node, words, place),
            Kind::List => self.write_list(node, words, place),
            Kind::Text => {
                let form = self.checked(kinds::text(node, words))?;
                let pattern = form.get("pattern").and_then(Value::as_str).unwrap_or_default();
                self.count(|limits| limits.text(pattern))?;
                Ok(form)
            }
            Kind::Number | Kind::Integer => self.checked(kinds::number(kind, node)),
            Kind::Boolean => Ok(kind.form()),
        }
    }

    /// The values of `enum` and `const` that are of a type, if there are any.
    fn write_values(
        &mut self,
        kind: Kind,
        values: &[&Value],
        node: &Node<'s>,
    ) -> Result<Option<Form>, Refusal> {
        let values: Vec<_> = values.iter().copied().filter(|value| kind.is_of(value)).collect();
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

    /// The same form of a value that may be `null` too.
    fn or_null(&mut self, mut form: Form) -> Result<Form, Refusal> {
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
