//! Deserializers for values that may have another type than in OpenAI's API: unusable values are treated as missing, so that
//! the rest can be read. Functions for `#[serde(deserialize_with)]`; they borrow where possible.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Deserializes a string, or a number as its digits.
pub(crate) fn string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    deserializer.deserialize_any(StringVisitor)
}

/// Deserializes an unsigned integer, which may also be a string or a float without a fraction.
pub(crate) fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(UnsignedVisitor)
}

/// Deserializes an object. `T` must deserialize from a map.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// Deserializes an array of objects, without elements of other types; one object stands for an array of it. More than `MAX`
/// objects are an error, because small objects take a multiple of their text in memory.
pub(crate) fn array<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(ArrayVisitor::<T, MAX>(PhantomData))
}

/// The result of [`object`], for places that need a type.
pub(crate) struct MaybeObject<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MaybeObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

/// The methods of a visitor that returns the default for these types of values.
macro_rules! default_for {
    ($($kind:ident),*) => { $(default_for!(@ $kind);)* };
    (@ null) => {
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ bool) => {
        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ number) => {
        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ string) => {
        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ array) => {
        fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<Self::Value, A::Error> {
            IgnoredAny.visit_seq(array)?;
            Ok(Self::Value::default())
        }
    };
    (@ object) => {
        fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
            IgnoredAny.visit_map(object)?;
            Ok(Self::Value::default())
        }
    };
}
pub(crate) use default_for;

struct StringVisitor;

impl<'de> Visitor<'de> for StringVisitor {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    default_for!(null, bool, array, object);
}

struct UnsignedVisitor;

impl<'de> Visitor<'de> for UnsignedVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an unsigned integer")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(number.try_into().ok())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        // Floats represent integers up to this size exactly.
        let is_unsigned = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        Ok(is_unsigned.then_some(number as u64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.trim().parse().ok())
    }

    default_for!(null, bool, array, object);
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }

    default_for!(null, bool, number, string, array);
}

struct ArrayVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ArrayVisitor<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(MaybeObject(element)) = array.next_element()? {
            if elements.len() == MAX {
                return Err(A::Error::custom(format_args!("an array has more than {MAX} elements")));
            }
            elements.extend(element);
        }
        Ok(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Ok(vec![T::deserialize(MapAccessDeserializer::new(object))?])
    }

    default_for!(null, bool, number, string);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Wire<'a> {
        #[serde(borrow, deserialize_with = "string")]
        text: Option<Cow<'a, str>>,
        #[serde(deserialize_with = "unsigned")]
        count: Option<u64>,
        #[serde(borrow, deserialize_with = "object")]
        inner: Option<Inner<'a>>,
        #[serde(borrow, deserialize_with = "array::<2, _, _>")]
        list: Vec<Inner<'a>>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow, deserialize_with = "string")]
        text: Option<Cow<'a, str>>,
    }

    fn inner(text: &str) -> Inner<'_> {
        Inner { text: Some(text.into()) }
    }

    #[test]
    fn reads_values_of_each_type_as_each_type() {
        let text = |text| Wire { text: Some(Cow::Borrowed(text)), ..Wire::default() };
        let count = |count| Wire { count: Some(count), ..Wire::default() };
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
                [nothing(), nothing(), nothing(), Wire { list: vec![inner("b")], ..nothing() }],
            ),
            (
                r#"{"text": "b", "else": [{}]}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Some(inner("b")), ..nothing() },
                    Wire { list: vec![inner("b")], ..nothing() },
                ],
            ),
            (
                r#"{"text": {"text": [1]}}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Some(Inner::default()), ..nothing() },
                    Wire { list: vec![Inner::default()], ..nothing() },
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
        let error =
            serde_json::from_str::<Wire<'_>>(r#"{"list": [{}, {}, {}]}"#).expect_err("it is too long");
        assert!(error.to_string().starts_with("an array has more than 2 elements"), "{error}");
    }
}
