//! Compares literals with types that a macro knows by name. All other types are left to rustc.

use quote::ToTokens;
use syn::{Expr, ExprLit, ExprUnary, Lit, Type, UnOp};

use crate::parameter::{ParameterType, option_argument};

/// The kind of values that a type has, as far as its name shows.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ValueKind {
    Integer { lowest: i128, highest: i128 },
    Float,
    Bool,
    Char,
    String,
    List,
}

impl ValueKind {
    /// Returns the kind and the name of a parameter's type, without the `Option` around it.
    pub(super) fn from_parameter(ty: &ParameterType) -> Option<(Self, String)> {
        let ty: Type = match ty {
            ParameterType::Owned(ty) => (**ty).clone(),
            ParameterType::Borrowed { owned, .. } => syn::parse2(owned.clone()).ok()?,
        };
        Self::from_type(option_argument(&ty).unwrap_or(&ty))
    }

    fn from_type(ty: &Type) -> Option<(Self, String)> {
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
            "String" => Self::String,
            "Vec" => Self::List,
            _ => return None,
        };
        Some((kind, name))
    }

    /// Describes a literal of the kind.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Integer { lowest: 0, highest: i128::MAX } => String::from("a non-negative integer"),
            Self::Integer { lowest, highest } => format!("an integer from {lowest} to {highest}"),
            Self::Float => String::from("a float such as `1.0`"),
            Self::Bool => String::from("`true` or `false`"),
            Self::Char => String::from("a character such as `'a'`"),
            Self::String => String::from("a string in quotes"),
            Self::List => String::from("a list such as `vec![]`"),
        }
    }
}

/// A literal, with its sign.
pub(super) enum Literal {
    Integer(i128),
    Float(f64),
    Bool,
    Char,
    String,
}

impl Literal {
    /// Returns the literal, or `None` for any other expression.
    pub(super) fn from_expr(expression: &Expr) -> Option<Self> {
        match expression {
            Expr::Lit(ExprLit { lit, .. }) => match lit {
                Lit::Int(integer) if matches!(integer.suffix(), "f32" | "f64") => {
                    integer.base10_digits().parse().ok().map(Self::Float)
                }
                Lit::Int(integer) => integer.base10_parse().ok().map(Self::Integer),
                Lit::Float(float) => float.base10_parse().ok().map(Self::Float),
                Lit::Bool(_) => Some(Self::Bool),
                Lit::Char(_) => Some(Self::Char),
                Lit::Str(_) => Some(Self::String),
                _ => None,
            },
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match Self::from_expr(expr)? {
                Self::Integer(integer) => Some(Self::Integer(-integer)),
                Self::Float(float) => Some(Self::Float(-float)),
                _ => None,
            },
            Expr::Paren(inner) => Self::from_expr(&inner.expr),
            Expr::Group(inner) => Self::from_expr(&inner.expr),
            _ => None,
        }
    }

    /// Returns `true` if rustc accepts the literal as a value of the kind.
    pub(super) fn fits(&self, kind: ValueKind) -> bool {
        match (self, kind) {
            (Self::Integer(integer), ValueKind::Integer { lowest, highest }) => {
                (lowest..=highest).contains(integer)
            }
            (Self::Float(_), ValueKind::Float)
            | (Self::Bool, ValueKind::Bool)
            | (Self::Char, ValueKind::Char)
            | (Self::String, ValueKind::String) => true,
            _ => false,
        }
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(integer) => Some(*integer as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }
}

/// Returns the source of an expression.
pub(super) fn source(expression: &Expr) -> String {
    expression.to_token_stream().to_string().replace("- ", "-")
}
