//! Values that may have another type than in OpenAI's API: unusable values are treated as missing, so that the rest can be read.
//! Texts are borrowed where possible.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The maximum number of elements of an array: far more than any reply has. Small ones take a multiple of their text in memory.
const MAX_ELEMENTS: usize = 1 << 12;

/// A type that is read from some types of JSON. From all others, it is the default.
pub(crate) trait Lenient<'de>: Default {
    /// Converts a string, or a number that is no unsigned integer.
    fn from_text(_: Cow<'de, str>) -> Self {
        Self::default()
    }

    fn from_unsigned(_: u64) -> Self {
        Self::default()
    }

    fn from_array<A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_seq(array)?;
        Ok(Self::default())
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_map(object)?;
        Ok(Self::default())
    }
}

/// Deserializes a value of any type.
pub(crate) fn deserialize<'de, T: Lenient<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(LenientVisitor(PhantomData))
}

struct LenientVisitor<T>(PhantomData<T>);

impl<'de, T: Lenient<'de>> Visitor<'de> for LenientVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok(T::from_unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Ok(T::from_text(number.to_string().into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Ok(T::from_text(number.to_string().into()))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T, E> {
        Ok(T::from_text(text.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::from_text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<T, A::Error> {
        T::from_array(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::from_object(object)
    }
}

/// A string, or a number as its digits.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Text<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Lenient<'de> for Text<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(Some(text))
    }

    fn from_unsigned(number: u64) -> Self {
        Self(Some(number.to_string().into()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

impl Text<'_> {
    /// Returns the text unless it is empty.
    pub(crate) fn non_empty(self) -> Option<String> {
        self.0.filter(|text| !text.is_empty()).map(Cow::into_owned)
    }
}

/// An unsigned integer, which may also be a string or a float without a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl Lenient<'_> for Count {
    fn from_text(text: Cow<'_, str>) -> Self {
        Self(text.trim().parse().ok())
    }

    fn from_unsigned(number: u64) -> Self {
        Self(Some(number))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

/// An object. `T` must deserialize from a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Object<T>(pub(crate) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Lenient<'de> for Object<T> {
    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(|object| Self(Some(object)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

/// An array of objects, without elements of other types; one object stands for an array of it.
#[derive(Debug, PartialEq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Lenient<'de> for List<T> {
    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut elements = Vec::new();
        while let Some(Object(element)) = array.next_element()? {
            if elements.len() == MAX_ELEMENTS {
                return Err(A::Error::custom(format_args!("an array has more than {MAX_ELEMENTS} elements")));
            }
            elements.extend(element);
        }
        Ok(Self(elements))
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Ok(Self(vec![T::deserialize(MapAccessDeserializer::new(object))?]))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct Wire<'a> {
        text: Text<'a>,
        count: Count,
        inner: Object<Inner<'a>>,
        list: List<Inner<'a>>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct Inner<'a> {
        text: Text<'a>,
    }

    fn inner(text: &str) -> Inner<'_> {
        Inner { text: Text(Some(text.into())) }
    }

    #[test]
    fn reads_values_of_each_type_as_each_type() {
        let text = |text: &'static str| Wire { text: Text(Some(text.into())), ..Wire::default() };
        let count = |count| Wire { count: Count(Some(count)), ..Wire::default() };
        let nothing = Wire::default;
        let table = [
            (r#""a""#, [text("a"), nothing(), nothing(), nothing()]),
            (r#""a\n""#, [text("a\n"), nothing(), nothing(), nothing()]),
            (r#"" 7""#, [text(" 7"), count(7), nothing(), nothing()]),
            ("7", [text("7"), count(7), nothing(), nothing()]),
            ("-7", [text("-7"), nothing(), nothing(), nothing()]),
            ("7.0", [text("7"), count(7), nothing(), nothing()]),
            ("7.5", [text("7.5"), nothing(), nothing(), nothing()]),
            ("1e30", [text("1000000000000000000000000000000"), nothing(), nothing(), nothing()]),
            ("null", [nothing(), nothing(), nothing(), nothing()]),
            ("true", [nothing(), nothing(), nothing(), nothing()]),
            ("[]", [nothing(), nothing(), nothing(), nothing()]),
            (
                r#"[{"text": "b"}, 1, [2]]"#,
                [nothing(), nothing(), nothing(), Wire { list: List(vec![inner("b")]), ..nothing() }],
            ),
            (
                r#"{"text": "b", "else": [{}]}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Object(Some(inner("b"))), ..nothing() },
                    Wire { list: List(vec![inner("b")]), ..nothing() },
                ],
            ),
            (
                r#"{"text": {"text": [1]}}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Object(Some(Inner::default())), ..nothing() },
                    Wire { list: List(vec![Inner::default()]), ..nothing() },
                ],
            ),
        ];
        for (value, expected) in table {
            for (name, expected) in ["text", "count", "inner", "list"].into_iter().zip(expected) {
                let json = format!(r#"{{"before": 1, "{name}": {value}, "after": 2}}"#);
                let read: Wire<'_> = serde_json::from_str(&json).expect(&json);
                assert_eq!(read, expected, "{json}");
            }
        }
    }

    #[test]
    fn rejects_arrays_beyond_the_limit() {
        let json = format!("[{}]", vec!["{}"; MAX_ELEMENTS + 1].join(","));
        let error = serde_json::from_str::<List<Inner<'_>>>(&json).expect_err("it is too long");
        assert!(error.to_string().starts_with("an array has more than 4096 elements"), "{error}");
    }
}
