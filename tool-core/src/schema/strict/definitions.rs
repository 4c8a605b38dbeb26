//! References to definitions.

use serde_json::Value;

/// The maximum length of a chain of references, which ends cycles.
const MAX_CHAIN: usize = 32;

/// The maximum number of characters of a name in an error.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Returns the name and the schema of the definition that a reference refers to.
pub(super) fn find<'s>(root: &'s Value, reference: &Value) -> Result<(String, &'s Value), String> {
    let path = reference.as_str().ok_or("`$ref` must be a string")?;
    let segment = ["#/$defs/", "#/definitions/"].iter().find_map(|folder| path.strip_prefix(folder));
    let Some(segment) = segment.filter(|segment| !segment.contains('/')) else {
        let path: String = path.chars().take(MAX_NAME_CHARS).collect();
        return Err(format!(
            "strict mode does not support the reference `{path}`; refer to `#` or to a schema in `#/$defs`"
        ));
    };
    let name = segment.replace("~1", "/").replace("~0", "~");
    match ["$defs", "definitions"].map(|folder| root.get(folder)?.get(&name)) {
        [Some(one), Some(other)] if one != other => {
            Err(format!("`{name}` is in `$defs` and in `definitions`; rename one of them"))
        }
        [Some(schema), _] | [None, Some(schema)] => Ok((name, schema)),
        [None, None] => Err(format!("there is no `{name}` in `$defs`")),
    }
}

/// Follows a chain of references to a schema that is not one.
pub(super) fn follow<'s>(root: &'s Value, mut schema: &'s Value) -> Result<&'s Value, String> {
    for _ in 0..MAX_CHAIN {
        match schema.get("$ref") {
            Some(reference) if reference != "#" => (_, schema) = find(root, reference)?,
            _ => return Ok(schema),
        }
    }
    Err("the reference leads only to other references; refer to a schema".into())
}
