//! References and definitions.

use serde_json::Value;

use super::Form;
use super::Position;
use super::Writer;
use super::kinds::{self, ValueKind};
use super::node::Node;
use crate::schema::Unsupported;

/// The maximum length of a chain of references.
const MAX_CHAIN: usize = 32;

impl<'s> Writer<'s> {
    /// Returns the schema of the arguments: an object, possibly behind references.
    pub(super) fn arguments(&self) -> Result<Node<'s>, Unsupported> {
        let mut schema = self.root;
        for _ in 0..MAX_CHAIN {
            let node = self.checked(Node::new(self.object(schema)?))?;
            if node.get("anyOf").or_else(|| node.get("oneOf")).is_some() {
                return self.refuse(
                    "strict mode does not support alternatives at the top level; use several tools or a single parameter",
                );
            }
            match node.get("$ref") {
                Some(reference) if *reference != "#" => (_, schema) = self.definition(reference)?,
                None if self.checked(kinds::kinds(&node))? == (vec![ValueKind::Object], false) => {
                    return Ok(node);
                }
                _ => break,
            }
        }
        self.refuse("the arguments of a tool must be an object; specify `\"type\": \"object\"`")
    }

    /// Writes a reference. Also returns whether the original schema allows `null`.
    pub(super) fn write_reference(
        &mut self,
        reference: &'s Value,
        node: &Node<'s>,
        position: Position,
    ) -> Result<(Form, bool), Unsupported> {
        if let Some(keyword) = node.constraints().find(|keyword| *keyword != "$ref") {
            return self.refuse(format!(
                "strict mode does not support `{keyword}` beside `$ref`; inline the definition"
            ));
        }
        let written = match reference.as_str() {
            Some("#") => "#".to_owned(),
            _ => {
                let (name, schema) = self.definition(reference)?;
                self.refuse_endless(schema)?;
                let segment = reference.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                let written = format!("#/$defs/{segment}");
                if self.referenced.insert(name.clone()) {
                    self.pending.push_back(name);
                }
                written
            }
        };
        let target = crate::schema::target(self.root, reference);
        let is_nullable = self.choices.allow_null(target);
        let form = Form::from_iter([("$ref".into(), written.into())]);
        if !node.is_nullable() && (is_nullable || !position.is_optional) {
            return Ok((form, is_nullable));
        }
        let choices = vec![Value::Object(form), serde_json::json!({ "type": "null" })];
        Ok((Form::from_iter([("anyOf".into(), choices.into())]), is_nullable || node.is_nullable()))
    }

    /// Writes each referenced definition once.
    pub(super) fn definitions(&mut self) -> Result<Form, Unsupported> {
        let mut definitions = Form::new();
        while let Some(name) = self.pending.pop_front() {
            let Some(schema) = self.named(&name).into_iter().flatten().next() else { continue };
            self.count(|limits| limits.name(&name))?;
            self.path = "$.$defs".into();
            let form = self.at(&name, |this| this.write_schema(schema, Position::TOP))?;
            definitions.insert(name, form);
        }
        Ok(definitions)
    }

    /// Returns the name and schema of the definition that a reference refers to.
    fn definition(&self, reference: &Value) -> Result<(String, &'s Value), Unsupported> {
        let Some(path) = reference.as_str() else { return self.refuse("`$ref` must be a string") };
        let segment = ["#/$defs/", "#/definitions/"].iter().find_map(|folder| path.strip_prefix(folder));
        let Some(segment) = segment.filter(|segment| !segment.contains('/')) else {
            let path: String = path.chars().take(super::MAX_NAME_CHARS).collect();
            return self.refuse(format!(
                "strict mode does not support the reference `{path}`; refer to `#` or to a schema in `#/$defs`"
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

    /// Returns the definitions with this name in `$defs` and `definitions`.
    fn named(&self, name: &str) -> [Option<&'s Value>; 2] {
        ["$defs", "definitions"].map(|folder| self.root.get(folder)?.get(name))
    }

    /// Fails if a definition is a reference that ends in a cycle.
    fn refuse_endless(&self, mut schema: &'s Value) -> Result<(), Unsupported> {
        for _ in 0..MAX_CHAIN {
            match schema.get("$ref") {
                Some(reference) if *reference != "#" => (_, schema) = self.definition(reference)?,
                _ => return Ok(()),
            }
        }
        self.refuse("the reference leads only to other references; refer to a schema")
    }
}
