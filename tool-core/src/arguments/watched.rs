//! Deserialization that notices the members of structs which a type ignores, and where a type refuses a value.
//!
//! `serde_ignored` and `serde_path_to_error` do this too, but compile each type once more, copy every name that they read, and refuse
//! integers of 128 bits. Here, nothing is allocated until something is noticed. An error leaves its ordinal in each object, list and
//! variant that it passes, from the inside outwards; untyped code turns the ordinals into a path.
//!
//! serde buffers flattened, internally tagged and untagged values, and adjacent content in front of its tag: members that these types
//! ignore are not noticed, and the errors of these types are reported at the enclosing value.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::value::RawValue;

/// The names of the members that a struct has, under which it reads them: `#[serde(alias = "…")]` included.
pub(super) type FieldNames = &'static [&'static str];

/// A member that a type ignores.
#[derive(Debug)]
pub(super) struct Ignored<'de> {
    pub(super) value: &'de str,
    /// The names of the members that its struct has.
    pub(super) known: FieldNames,
}

/// A part of an object, list or variant, in which an error was raised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The position of the part.
    pub(super) ordinal: usize,
    /// The names of the members, if the part is a member of a struct.
    pub(super) names: Option<FieldNames>,
}

/// What was noticed while a value was deserialized.
#[derive(Debug, Default)]
pub(super) struct Notes<'de> {
    pub(super) ignored: RefCell<Vec<Ignored<'de>>>,
    /// The way from the place of the error to the whole value.
    pub(super) steps: RefCell<Vec<Step>>,
}

/// The enclosing struct of a value, if the value is a member of one, and the notes about the whole value.
#[derive(Clone, Copy)]
pub(super) struct Scope<'n, 'de> {
    names: Option<FieldNames>,
    notes: &'n Notes<'de>,
}

impl<'n, 'de> Scope<'n, 'de> {
    #[inline]
    pub(super) fn new(notes: &'n Notes<'de>) -> Self {
        Self { names: None, notes }
    }

    #[inline]
    fn of_struct(self, names: FieldNames) -> Self {
        Self { names: Some(names), ..self }
    }

    #[inline]
    fn of_map(self) -> Self {
        Self { names: None, ..self }
    }

    /// Returns the part at this position. Notes where it was if it is an error.
    #[inline]
    fn noting<T, E>(self, part: Result<T, E>, ordinal: usize) -> Result<T, E> {
        if part.is_err() {
            self.note_step(ordinal);
        }
        part
    }

    #[cold]
    fn note_step(self, ordinal: usize) {
        self.notes.steps.borrow_mut().push(Step { ordinal, names: self.names });
    }
}

/// A deserializer or a visitor that records ignored members of structs.
pub(super) struct Watched<'s, 'n, 'de, T> {
    inner: T,
    // A reference, because this is passed on for each value.
    scope: &'s Scope<'n, 'de>,
}

impl<'s, 'n, 'de, T> Watched<'s, 'n, 'de, T> {
    #[inline]
    pub(super) fn new(inner: T, scope: &'s Scope<'n, 'de>) -> Self {
        Self { inner, scope }
    }
}

/// Deserializes values that have no members with the unchanged visitor.
macro_rules! deserialize_scalars {
    ($($method:ident($($parameter:ident: $type:ty)?))*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $($parameter: $type,)? visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method($($parameter,)? visitor)
        }
    )*};
}

/// Deserializes values that can have members with a watched visitor.
macro_rules! deserialize_containers {
    ($($method:ident($($parameter:ident: $type:ty),*))*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $($parameter: $type,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method($($parameter,)* Watched::new(visitor, self.scope))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Watched<'_, '_, 'de, D> {
    type Error = D::Error;

    deserialize_scalars! {
        deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_unit() deserialize_identifier()
        deserialize_unit_struct(name: &'static str)
    }

    deserialize_containers! {
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_map();
        self.inner.deserialize_any(Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_map();
        self.inner.deserialize_map(Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_struct(fields);
        self.inner.deserialize_struct(name, fields, Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let Some(known) = self.scope.names else { return self.inner.deserialize_ignored_any(visitor) };
        let value = <&'de RawValue>::deserialize(self.inner)?;
        self.scope.notes.ignored.borrow_mut().push(Ignored { value: value.get(), known });
        visitor.visit_unit()
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit_scalars {
    ($($method:ident($($value:ident: $type:ty)?))*) => {$(
        #[inline]
        fn $method<E: Error>(self, $($value: $type)?) -> Result<V::Value, E> {
            self.inner.$method($($value)?)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watched<'_, '_, 'de, V> {
    type Value = V::Value;

    #[inline]
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit_scalars! {
        visit_none() visit_unit() visit_bool(value: bool) visit_char(value: char)
        visit_i8(value: i8) visit_i16(value: i16) visit_i32(value: i32) visit_i64(value: i64) visit_i128(value: i128)
        visit_u8(value: u8) visit_u16(value: u16) visit_u32(value: u32) visit_u64(value: u64) visit_u128(value: u128)
        visit_f32(value: f32) visit_f64(value: f64)
        visit_str(value: &str) visit_borrowed_str(value: &'de str) visit_string(value: String)
        visit_bytes(value: &[u8]) visit_borrowed_bytes(value: &'de [u8]) visit_byte_buf(value: Vec<u8>)
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Watched::new(deserializer, self.scope))
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Watched::new(deserializer, self.scope))
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(WatchedParts { inner: list, scope: self.scope, next: 0 })
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(WatchedParts { inner: object, scope: self.scope, next: 0 })
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Watched::new(variant, self.scope))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Watched<'_, '_, 'de, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = Watched::new(deserializer, self.scope);
        self.inner.deserialize(deserializer)
    }
}

/// The members of an object or the items of a list.
struct WatchedParts<'s, 'n, 'de, A> {
    inner: A,
    scope: &'s Scope<'n, 'de>,
    /// The position of the next part.
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for WatchedParts<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let item = self.inner.next_element_seed(Watched::new(seed, self.scope));
        self.next += 1;
        self.scope.noting(item, self.next - 1)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WatchedParts<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.inner.next_value_seed(Watched::new(seed, self.scope));
        self.next += 1;
        self.scope.noting(value, self.next - 1)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'s, 'n, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Watched<'s, 'n, 'de, A> {
    type Error = A::Error;
    type Variant = Watched<'s, 'n, 'de, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.inner.variant_seed(seed)?;
        Ok((name, Watched::new(variant, self.scope)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Watched<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let data = self.inner.newtype_variant_seed(Watched::new(seed, self.scope));
        self.scope.of_map().noting(data, 0)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let data = self.inner.tuple_variant(len, Watched::new(visitor, self.scope));
        self.scope.of_map().noting(data, 0)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let scope = self.scope.of_struct(fields);
        let data = self.inner.struct_variant(fields, Watched::new(visitor, &scope));
        self.scope.of_map().noting(data, 0)
    }
}
