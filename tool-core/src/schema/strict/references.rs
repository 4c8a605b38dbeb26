//! References, and the definitions that they refer to.

use serde_json::Value;

use super::Form;
use super::Place;
use super::Writer;
use super::kinds::{self, Kind};
use super::node::Node;
use crate::schema::Refusal;

/// How many references may refer to each other in a row.
const LONGEST_CHAIN: usize = 32;

impl<'s> Writer<'s> {
    /// The schema of the arguments: an object, perhaps behind a reference.
    #[inline]
    pub(super) fn arguments(&self) -> Result<Node<'s>, Refusal> {
        let mut schema = self.root;
        for _ in 0..LONGEST_CHAIN {
            let node = self.checked(Node::new(self.object(schema)?))?;
            if node.get("anyOf").or_else(|| node.get("oneOf")).is_some() {
                return self.refuse(
                    "a choice at the top cannot be said in strict mode; make it several tools, or one parameter",
                );
            }
            match node.get("$ref") {
                Some(reference) if *reference != "#" => (_, schema) = self.definition(reference)?,
                None if self.checked(kinds::of(&node))? == (vec![Kind::Object], false) => return Ok(node),
                _ => break,
            }
        }
        self.refuse("the arguments of a tool are an object; write `\"type\": \"object\"`")
    }

    /// A reference; says also whether `null` was right before.
    #[inline]
    pub(super) fn write_reference(
        &mut self,
        reference: &'s Value,
        node: &Node<'s>,
        place: Place,
    ) -> Result<(Form, bool), Refusal> {
        if let Some(word) = node.bounds().find(|word| *word != "$ref") {
            return self.refuse(format!(
                "`{word}` cannot stand beside `$ref` in strict mode; write out what it refers to"
            ));
        }
        let written = match reference.as_str() {
            Some("#") => "#".to_owned(),
            _ => {
                let (name, schema) = self.definition(reference)?;
                self.refuse_endless(schema)?;
                let segment = reference.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                let written = format!("#/$defs/{segment}");
                if self.referred.insert(name.clone()) {
                    self.waiting.push_back(name);
                }
                written
            }
        };
        let target = reference.as_str().and_then(|path| self.root.pointer(path.strip_prefix('#')?));
        let is_nullable = self.choices.admit_null(target);
        let form = Form::from_iter([("$ref".into(), written.into())]);
        if !node.is_nullable() && (is_nullable || !place.is_optional) {
            return Ok((form, is_nullable));
        }
        let choices = vec![Value::Object(form), serde_json::json!({ "type": "null" })];
        Ok((Form::from_iter([("anyOf".into(), choices.into())]), is_nullable || node.is_nullable()))
    }

    /// The definitions that were referred to, each once.
    #[inline]
    pub(super) fn definitions(&mut self) -> Result<Form, Refusal> {
        let mut definitions = Form::new();
        while let Some(name) = self.waiting.pop_front() {
            let Some(schema) = self.named(&name).into_iter().flatten().next() else { continue };
            self.count(|limits| limits.name(&name))?;
            self.path = "$.$defs".into();
            let form = self.at(&name, |this| this.write_schema(schema, Place::TOP))?;
            definitions.insert(name, form);
        }
        Ok(definitions)
    }

    /// The name and the schema of the definition that is referred to.
    #[inline]
    fn definition(&self, reference: &Value) -> Result<(String, &'s Value), Refusal> {
        let Some(path) = reference.as_str() else { return self.refuse("`$ref` must be a text") };
        let segment = ["#/$defs/", "#/definitions/"].iter().find_map(|folder| path.strip_prefix(folder));
        let Some(segment) = segment.filter(|segment| !segment.contains('/')) else {
            let path: String = path.chars().take(super::LONGEST_NAME).collect();
            return self.refuse(format!(
                "`{path}` cannot be referred to in strict mode; refer to `#` or to a schema in `#/$defs`"
            ));
        };
        let name = segment.replace("~1", "/").replace("~0", "~");
        match self.named(&name) {
            [Some(one), Some(other)] if one != other => {
                self.refuse(format!("`{name}` is in `$defs` and in `definitions`; rename one of them"))
            }
            [Some(schema), _] | [None, Some(schema)] => Ok((name, schema)),
            [None, None] => self.refuse(format!("there is no `{name}` in `$defs`")),
        }
    }

    /// What the two folders of definitions have of this name.
    #[inline]
    fn named(&self, name: &str) -> [Option<&'s Value>; 2] {
        ["$defs", "definitions"].map(|folder| self.root.get(folder)?.get(name))
    }

    /// Refuses a definition that is nothing but a reference, which in the end refers to itself.
    #[inline]
    fn refuse_endless(&self, mut schema: &'s Value) -> Result<(), Refusal> {
        for _ in 0..LONGEST_CHAIN {
            match schema.get("$ref") {
                Some(reference) if *reference != "#" => (_, schema) = self.definition(reference)?,
                _ => return Ok(()),
            }
        }
        self.refuse("the reference leads only to more references; refer to what is meant")
    }
}
