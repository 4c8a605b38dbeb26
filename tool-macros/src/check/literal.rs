//! Literals against the types that a macro knows by name. What it does not know is left to rustc.

use quote::ToTokens;
use syn::{Expr, ExprLit, ExprUnary, Lit, Type, UnOp};

use crate::input::{ArgumentType, inside_option};

/// What a type's name tells of its values.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Integer { lowest: i128, highest: i128 },
    Float,
    Bool,
    Char,
    Text,
    List,
}

impl Kind {
    /// The kind of an argument's type, without the `Option` around it, and its name.
    pub(super) fn of(ty: &ArgumentType) -> Option<(Self, String)> {
        let ty: Type = match ty {
            ArgumentType::Owned(ty) => (**ty).clone(),
            ArgumentType::Borrowed { owned, .. } => syn::parse2(owned.clone()).ok()?,
        };
        Self::of_type(inside_option(&ty).unwrap_or(&ty))
    }

    fn of_type(ty: &Type) -> Option<(Self, String)> {
        let Type::Path(path) = ty else { return None };
        let name = path.path.segments.last()?.ident.to_string();
        let signed = |bits: u32| {
            let lowest = i128::MIN >> (128 - bits);
            Self::Integer { lowest, highest: -(lowest + 1) }
        };
        let unsigned = |bits: u32| Self::Integer { lowest: 0, highest: i128::MAX >> (127 - bits) };
        let kind = match &*name {
            "u8" => unsigned(8),
            "u16" => unsigned(16),
            "u32" => unsigned(32),
            "u64" | "usize" => unsigned(64),
            "u128" => unsigned(127),
            "i8" => signed(8),
            "i16" => signed(16),
            "i32" => signed(32),
            "i64" | "isize" => signed(64),
            "i128" => signed(128),
            "f32" | "f64" => Self::Float,
            "bool" => Self::Bool,
            "char" => Self::Char,
            "String" => Self::Text,
            "Vec" => Self::List,
            _ => return None,
        };
        Some((kind, name))
    }

    /// The kind in words for who has to write a literal of it.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Integer { .. } => "an integer",
            Self::Float => "a number such as `1.0`",
            Self::Bool => "`true` or `false`",
            Self::Char => "a character in single quotes",
            Self::Text => "a text in quotes",
            Self::List => "a list such as `vec![]`",
        }
    }
}

/// A literal, with the minus in front of it.
pub(super) enum Literal {
    Integer(i128),
    Float(f64),
    Bool,
    Char,
    Text,
}

impl Literal {
    pub(super) fn of(expression: &Expr) -> Option<Self> {
        match expression {
            Expr::Lit(ExprLit { lit, .. }) => match lit {
                Lit::Int(integer) if matches!(integer.suffix(), "f32" | "f64") => {
                    integer.base10_digits().parse().ok().map(Self::Float)
                }
                Lit::Int(integer) => integer.base10_parse().ok().map(Self::Integer),
                Lit::Float(float) => float.base10_parse().ok().map(Self::Float),
                Lit::Bool(_) => Some(Self::Bool),
                Lit::Char(_) => Some(Self::Char),
                Lit::Str(_) => Some(Self::Text),
                _ => None,
            },
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match Self::of(expr)? {
                Self::Integer(integer) => Some(Self::Integer(-integer)),
                Self::Float(float) => Some(Self::Float(-float)),
                _ => None,
            },
            Expr::Paren(inner) => Self::of(&inner.expr),
            Expr::Group(inner) => Self::of(&inner.expr),
            _ => None,
        }
    }

    /// It is a value of the kind, as rustc sees it.
    pub(super) fn is_of(&self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Integer(integer), Kind::Integer { lowest, highest }) => {
                (lowest..=highest).contains(integer)
            }
            (Self::Float(_), Kind::Float)
            | (Self::Bool, Kind::Bool)
            | (Self::Char, Kind::Char)
            | (Self::Text, Kind::Text) => true,
            _ => false,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(integer) => Some(*integer as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }
}

/// An expression as it is written.
pub(super) fn written(expression: &Expr) -> String {
    expression.to_token_stream().to_string().replace("- ", "-")
}
