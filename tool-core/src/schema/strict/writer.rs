//! The pass that writes the strict form.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::definitions::{MAX_NAME_CHARS, find, follow};
use super::description::{Words, describe_bounds, summarize};
use super::limits::{self, Limits};
use super::node::StrictNode;
use super::types::{self, Types, has_type};
use crate::content::MAX_SCHEMA_DEPTH;

/// The number of names in `required` that are read, the most properties that strict mode allows.
const MAX_REQUIRED: usize = 5_000;

const OPEN_MAP: &str = "strict mode does not support maps with arbitrary keys; use a list of pairs";

const OPEN_LIST: &str = "strict mode does not support lists of anything; specify `items`";

/// The error is the reason why the schema at the current path has no strict form.
type Written<T> = Result<T, String>;

/// Writes the strict form of each schema that it visits. A `level` is the number of objects and lists around a value.
pub(super) struct Writer<'s> {
    root: &'s Value,
    /// The path to the schema that is being written. After an error, it is the place of the error.
    pub(super) path: String,
    depth: usize,
    limits: Limits,
    /// The forms of the referenced definitions, including the ones that are still to be written.
    definitions: Map<String, Value>,
    pending: VecDeque<(String, &'s Value)>,
}

impl<'s> Writer<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        let (depth, limits, definitions, pending) = Default::default();
        Self { root, path: "$".into(), depth, limits, definitions, pending }
    }

    /// Writes the schema of the arguments, an object that can be behind references, and each referenced definition once.
    pub(super) fn write_arguments(&mut self) -> Written<Value> {
        let node = StrictNode::merge(&[follow(self.root, self.root)?])?;
        if node.get("anyOf").or_else(|| node.get("oneOf")).is_some() {
            return Err(
                "strict mode does not support alternatives at the top level; use several tools or a single parameter"
                    .into(),
            );
        }
        let is_object = |types: Types<'_>| types.names == ["object"] && !types.has_null;
        if node.get("$ref").is_some() || !is_object(Types::new(&node)?) {
            return Err("the arguments of a tool must be an object; specify `\"type\": \"object\"`".into());
        }
        let mut form = self.write(&node, 0, false)?;
        while let Some((name, schema)) = self.pending.pop_front() {
            self.limits.add_name(&name)?;
            self.path = "$.$defs".into();
            let definition = self.at(&name, |this| this.write(&StrictNode::merge(&[schema])?, 0, false))?;
            self.definitions.insert(name, definition);
        }
        if !self.definitions.is_empty() {
            form["$defs"] = std::mem::take(&mut self.definitions).into();
        }
        Ok(form)
    }

    /// Writes a part one step further down the path.
    fn at<T>(&mut self, step: &str, write: impl FnOnce(&mut Self) -> Written<T>) -> Written<T> {
        let length = self.path.len();
        self.path.push('.');
        self.path.extend(step.chars().take(MAX_NAME_CHARS));
        self.depth += 1;
        if self.depth > MAX_SCHEMA_DEPTH {
            return Err(format!(
                "schemas may be nested at most {MAX_SCHEMA_DEPTH} levels deep; flatten the schema"
            ));
        }
        let written = write(self)?;
        self.depth -= 1;
        self.path.truncate(length);
        Ok(written)
    }

    /// Writes a schema. The model writes `null` to omit an optional value.
    fn write(&mut self, node: &StrictNode<'s>, level: usize, is_optional: bool) -> Written<Value> {
        self.limits.add(limits::SCHEMAS, 1)?;
        let mut words = Words::new(node)?;
        let mut form = match (node.get("$ref"), node.get("anyOf"), node.get("oneOf")) {
            (Some(reference), None, None) => self.write_reference(reference, node)?,
            (None, Some(_), None) => self.write_choices("anyOf", node, level)?,
            (None, None, Some(_)) => self.write_choices("oneOf", node, level)?,
            (None, None, None) => self.write_types(node, &mut words, level)?,
            _ => return Err("strict mode does not support combining `$ref`, `anyOf` and `oneOf`".into()),
        };
        let is_nullable = accepts_null(&form) || node.get("nullable") == Some(&Value::Bool(true));
        if (is_optional || is_nullable) && !accepts_null(&form) {
            form = self.or_null(form)?;
        }
        match node.get("default").filter(|default| !default.is_null()) {
            // A definition may have another meaning for `null`.
            Some(default) if is_optional && !is_nullable && node.get("$ref").is_none() => {
                words.add(&format!("`null` means {default}."));
            }
            Some(default) => words.add(&format!("The default is {default}.")),
            None => {}
        }
        // The form can have the description of its only alternative.
        words.add(form.get("description").and_then(Value::as_str).unwrap_or_default());
        let description = words.into_text();
        if !description.is_empty() {
            self.limits.add(limits::TEXT, description.len())?;
            // A reference must not have other keywords beside it.
            if form.get("$ref").is_some() {
                form = json!({ "anyOf": [form] });
            }
            form["description"] = description.into();
        }
        Ok(form)
    }

    /// Makes a form accept `null`.
    fn or_null(&mut self, mut form: Value) -> Written<Value> {
        if let Some(choices) = form.get_mut("anyOf").and_then(Value::as_array_mut) {
            choices.push(json!({ "type": "null" }));
            return Ok(form);
        }
        let Some(name) = form.get("type") else { return Ok(json!({ "anyOf": [form, { "type": "null" }] })) };
        form["type"] = json!([name, "null"]);
        if let Some(value) = form.as_object_mut().and_then(|form| form.remove("const")) {
            form["enum"] = json!([value]);
        }
        if let Some(values) = form.get_mut("enum").and_then(Value::as_array_mut) {
            self.limits.add(limits::ENUM_VALUES, 1)?;
            values.push(Value::Null);
        }
        Ok(form)
    }

    fn write_reference(&mut self, reference: &'s Value, node: &StrictNode<'s>) -> Written<Value> {
        if let Some(keyword) = node.constraint_beside_reference() {
            return Err(format!(
                "strict mode does not support `{keyword}` beside `$ref`; inline the definition"
            ));
        }
        let mut written = reference.clone();
        if reference != "#" {
            let (name, schema) = find(self.root, reference)?;
            follow(self.root, schema)?;
            written = format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1")).into();
            if self.definitions.insert(name.clone(), Value::Null).is_none() {
                self.pending.push_back((name, schema));
            }
        }
        Ok(json!({ "$ref": written }))
    }

    /// Writes alternatives. The constraints of the enclosing schema apply to each.
    fn write_choices(&mut self, keyword: &str, node: &StrictNode<'s>, level: usize) -> Written<Value> {
        let choices = node.get(keyword).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut forms = Vec::new();
        for (index, choice) in choices.iter().enumerate() {
            let form = self.at(&format!("{keyword}[{index}]"), |this| {
                this.write(&node.alternative(choice)?, level, false)
            })?;
            match form.get("anyOf").and_then(Value::as_array) {
                Some(inner) if form.get("description").is_none() => forms.extend(inner.iter().cloned()),
                _ => forms.push(form),
            }
        }
        one_or_any_of(forms).ok_or_else(|| format!("`{keyword}` must be a list of schemas"))
    }

    /// Writes a value of one of the types of the schema.
    fn write_types(&mut self, node: &StrictNode<'s>, words: &mut Words, level: usize) -> Written<Value> {
        let Types { names, has_null, values } = Types::new(node)?;
        let mut forms = Vec::new();
        for name in names {
            forms.push(match (&values, name) {
                (Some(values), _) => self.write_values(name, values, node)?,
                (None, "object") => self.write_object(node, words, level + 1)?,
                (None, "array") => self.write_list(node, words, level + 1)?,
                (None, "string") => types::string(node, words)?,
                (None, "boolean") => json!({ "type": name }),
                (None, _) => types::number(name, node)?,
            });
        }
        match one_or_any_of(forms) {
            Some(form) if has_null => self.or_null(form),
            None if has_null => Ok(json!({ "type": "null" })),
            form => form.ok_or_else(|| "no value of `enum` has the required type".into()),
        }
    }

    /// Writes the values of `enum` or `const` that have a type.
    fn write_values(&mut self, name: &str, values: &[&'s Value], node: &StrictNode<'s>) -> Written<Value> {
        let values: Vec<_> = values.iter().copied().filter(|value| has_type(value, name)).collect();
        self.limits.add_values(&values)?;
        Ok(match node.get("const") {
            Some(value) => json!({ "type": name, "const": value }),
            None => json!({ "type": name, "enum": values }),
        })
    }

    /// Writes a closed object with all properties required.
    fn write_object(&mut self, node: &StrictNode<'s>, words: &mut Words, level: usize) -> Written<Value> {
        Limits::check_level(level)?;
        let is_closed = |keyword| node.all(keyword).all(|more| *more == Value::Bool(false));
        let has_patterns = node.all("patternProperties").any(|patterns| *patterns != json!({}));
        if has_patterns || !is_closed("additionalProperties") || !is_closed("unevaluatedProperties") {
            return Err(OPEN_MAP.into());
        }
        // At the top level this is a tool without parameters; anywhere else it is an object of any shape.
        let is_specified = node.get("properties").or_else(|| node.get("additionalProperties")).is_some();
        if !is_specified && self.depth > 0 {
            return Err("strict mode does not support objects of any shape; specify `properties`".into());
        }
        let required = node.all("required").filter_map(Value::as_array).flatten().take(MAX_REQUIRED);
        let required: BTreeSet<_> = required.filter_map(Value::as_str).collect();
        let mut forms = Map::new();
        for properties in node.all("properties") {
            for name in properties.as_object().ok_or("`properties` must be an object")?.keys() {
                if forms.contains_key(name) {
                    continue;
                }
                self.limits.add(limits::PROPERTIES, 1)?;
                self.limits.add_name(name)?;
                // Each of the merged schemas can have one for the property.
                let schemas: Vec<_> = node.all("properties").filter_map(|all| all.get(name)).collect();
                let is_optional = !required.contains(&**name);
                let form = self.at(&format!("properties.{name}"), |this| {
                    this.write(&StrictNode::merge(&schemas)?, level, is_optional)
                })?;
                forms.insert(name.clone(), form);
            }
        }
        if let Some(name) = required.into_iter().find(|name| !forms.contains_key(*name)) {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            return Err(format!("`{name}` is required but not in `properties`; add it there"));
        }
        words.add(&describe_bounds(node.length("minProperties")?, node.length("maxProperties")?, "field"));
        let names: Vec<_> = forms.keys().cloned().collect();
        Ok(json!({ "type": "object", "properties": forms, "required": names, "additionalProperties": false }))
    }

    /// Writes a list. The items of a tuple become alternatives, and their order a description.
    fn write_list(&mut self, node: &StrictNode<'s>, words: &mut Words, level: usize) -> Written<Value> {
        Limits::check_level(level)?;
        let (least, mut most) = (node.length("minItems")?, node.length("maxItems")?);
        // Earlier drafts have the list of a tuple's schemas in `items`.
        let prefix = node.get("prefixItems").or(node.get("items")).and_then(Value::as_array);
        let prefix = prefix.map_or(&[][..], Vec::as_slice);
        let length = prefix.len() as u64;
        let may_have_more = prefix.is_empty() || most.is_none_or(|most| most > length);
        let is_more = |items: &&Value| !items.is_array() && (prefix.is_empty() || items.is_object());
        let more = node.get("items").filter(|_| may_have_more).filter(is_more);
        if more.is_none() {
            most = Some(most.unwrap_or(length).min(length));
        }
        let steps =
            prefix.iter().enumerate().map(|(index, schema)| (format!("prefixItems[{index}]"), schema));
        let (mut forms, mut order) = (Vec::new(), Vec::new());
        for (step, schema) in steps.chain(more.map(|schema| ("items".to_owned(), schema))) {
            let form = self.at(&step, |this| this.write(&StrictNode::merge(&[schema])?, level, false))?;
            order.push(summarize(&form));
            forms.push(form);
        }
        let items = one_or_any_of(forms).ok_or(OPEN_LIST)?;
        if order.len() > 1 && items.get("anyOf").is_some() {
            words.add(&format!("In this order: {}.", order[..prefix.len()].join(", ")));
        }
        let mut form = json!({ "type": "array", "items": items });
        for (keyword, bound) in [("minItems", least), ("maxItems", most)] {
            if let Some(bound) = bound {
                form[keyword] = bound.into();
            }
        }
        if node.get("uniqueItems") == Some(&Value::Bool(true)) {
            words.add("No item twice.");
        }
        Ok(form)
    }
}

/// Returns `true` if a form accepts `null` without a look at definitions.
fn accepts_null(form: &Value) -> bool {
    let mut choices = form.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let has_null = |names: &Value| names == "null" || names[1] == "null";
    form.get("type").is_some_and(has_null) || choices.any(accepts_null)
}

/// Combines different forms. Returns `None` if there is none.
fn one_or_any_of(mut forms: Vec<Value>) -> Option<Value> {
    let mut seen = BTreeSet::new();
    forms.retain(|form| seen.insert(form.to_string()));
    if forms.len() > 1 { Some(json!({ "anyOf": forms })) } else { forms.pop() }
}
