//! One schema, put together of all that say something of the same value.

use serde_json::{Map, Value};

/// How many schemas may be merged into one.
const MOST_PARTS: usize = 100;

/// Words that say what a value must be. All others describe, join schemas, or mean nothing to a reader of values.
const BOUNDS: [&str; 40] = [
    "$ref",
    "type",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
];

/// Words of objects that are put together from all parts.
const GATHERED: [&str; 3] = ["properties", "required", "additionalProperties"];

/// A schema with those in its `allOf`, and the bounds of the schema around it if it is one of its choices.
#[derive(Clone)]
pub(super) struct Node<'s> {
    parts: Vec<&'s Map<String, Value>>,
    /// How many of the parts are around: of them, only the bounds count.
    around: usize,
}

impl<'s> Node<'s> {
    /// The schema as it is written in one place.
    #[inline]
    pub(super) fn new(words: &'s Map<String, Value>) -> Result<Self, String> {
        Self::with_around(Vec::new(), words)
    }

    /// The schema of a choice: what bounds the whole bounds it as well.
    #[inline]
    pub(super) fn choice(&self, words: &'s Map<String, Value>) -> Result<Self, String> {
        let around = if self.has_bounds() { self.parts.clone() } else { Vec::new() };
        Self::with_around(around, words)
    }

    /// The schema of a value that several schemas are given for.
    #[inline]
    pub(super) fn all(several: &[&'s Map<String, Value>]) -> Result<Self, String> {
        let mut node = Self { parts: Vec::new(), around: 0 };
        for words in several {
            node.push(words)?;
        }
        node.refuse_conflicts()?;
        Ok(node)
    }

    #[inline]
    fn with_around(
        around: Vec<&'s Map<String, Value>>,
        words: &'s Map<String, Value>,
    ) -> Result<Self, String> {
        let mut node = Self { around: around.len(), parts: around };
        node.push(words)?;
        node.refuse_conflicts()?;
        Ok(node)
    }

    /// Adds a schema, and those in its `allOf`.
    #[inline]
    fn push(&mut self, words: &'s Map<String, Value>) -> Result<(), String> {
        let mut waiting = vec![words];
        while let Some(words) = waiting.pop() {
            self.parts.push(words);
            let Some(all) = words.get("allOf") else { continue };
            let all = all.as_array().ok_or("`allOf` must be a list of schemas")?;
            if self.parts.len() + waiting.len() + all.len() > MOST_PARTS {
                return Err(format!(
                    "more than {MOST_PARTS} schemas in one `allOf` are too many; merge them"
                ));
            }
            for schema in all.iter().rev() {
                waiting.push(schema.as_object().ok_or("`allOf` must be a list of schemas that are objects")?);
            }
        }
        Ok(())
    }

    /// Of what cannot be merged, both must say the same.
    #[inline]
    fn refuse_conflicts(&self) -> Result<(), String> {
        if self.parts.len() < 2 {
            return Ok(());
        }
        for word in BOUNDS.iter().filter(|word| !GATHERED.contains(word)) {
            // What is around was compared when it was put together.
            let first = self.parts.iter().find_map(|part| part.get(*word));
            let mut more = self.parts[self.around..].iter().filter_map(|part| part.get(*word));
            if more.any(|other| first.is_some_and(|first| !std::ptr::eq(first, other) && first != other)) {
                return Err(format!(
                    "`{word}` is given twice and cannot be merged for strict mode; write one schema of both"
                ));
            }
        }
        let has_reference = self.parts.iter().any(|part| part.contains_key("$ref"));
        let bounds = self.parts.iter().filter(|part| has_bounds(part)).count();
        if has_reference && bounds > 1 {
            return Err(
                "a `$ref` cannot be merged with more in strict mode; write out what it refers to".into()
            );
        }
        Ok(())
    }

    /// The first that is said of this word.
    #[inline]
    pub(super) fn get(&self, word: &str) -> Option<&'s Value> {
        self.each(word).next()
    }

    /// All that is said of this word.
    #[inline]
    pub(super) fn each<'n>(&'n self, word: &str) -> impl Iterator<Item = &'s Value> + use<'n, 's> {
        let skipped = if BOUNDS.contains(&word) { 0 } else { self.around };
        let word = word.to_owned();
        self.parts[skipped..].iter().filter_map(move |part| part.get(&word))
    }

    /// It says what a value must be, and not only which of several schemas holds.
    #[inline]
    pub(super) fn has_bounds(&self) -> bool {
        self.parts.iter().any(|part| has_bounds(part))
    }

    /// It says so in the word of OpenAPI.
    #[inline]
    pub(super) fn is_nullable(&self) -> bool {
        self.get("nullable") == Some(&Value::Bool(true))
    }

    /// The words that say what a value must be, of whichever part.
    #[inline]
    pub(super) fn bounds(&self) -> impl Iterator<Item = &'static str> + use<'_, 's> {
        BOUNDS.into_iter().filter(|word| self.get(word).is_some())
    }
}

#[inline]
fn has_bounds(words: &Map<String, Value>) -> bool {
    BOUNDS.iter().any(|word| words.contains_key(*word))
}
