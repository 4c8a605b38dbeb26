//! The model: what the macro knows of an annotated function.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, FnArg, Ident, ItemFn, Lifetime, LitBool, Pat, PatType, Path, ReturnType, Type, TypeReference,
};

use crate::attributes::{ParamAttribute, ToolAttribute};
use crate::diagnostics::Diagnostics;
use crate::docs;
use crate::fallback;
use crate::names::PARAM;

/// A function that becomes a tool.
pub(crate) struct ToolFn {
    /// The tool's name, at the place where it is written.
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) krate: Path,
    /// The function as the user wrote it, without our attributes.
    pub(crate) function: ItemFn,
}

/// A name for the model.
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
    /// It was written as `name = "…"`.
    pub(crate) is_explicit: bool,
}

/// One parameter that the model fills.
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    /// What `required = …` says, if it is there.
    pub(crate) required: Option<LitBool>,
    pub(crate) ty: ParameterType,
}

/// The type that the argument is read as, and how the function takes it.
pub(crate) enum ParameterType {
    Owned(Box<Type>),
    /// `&str`, `&[T]`, `&T`: the owned type, of which the function borrows.
    Borrowed {
        owned: TokenStream,
        lifetime: Option<Lifetime>,
        span: Span,
    },
}

impl ToolFn {
    pub(crate) fn from_item(
        attribute: TokenStream,
        mut function: ItemFn,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let attribute = ToolAttribute::from_tokens(attribute, diagnostics);
        for misplaced in &function.attrs {
            if fallback::is_tool(misplaced) {
                diagnostics.error(misplaced, "`#[tool]` is given twice; leave one out");
            } else if misplaced.path().is_ident(PARAM) {
                let message = "`#[param]` belongs in front of a parameter: `fn sum(#[param(\"…\")] a: f64)`";
                diagnostics.error(misplaced, message);
            }
        }
        let name = match attribute.name {
            Some(name) => Name::explicit(&name),
            None => Name::of(&function.sig.ident),
        };
        let description =
            attribute.description.map(|text| text.value()).or_else(|| docs::text(&function.attrs));
        let parameters = function
            .sig
            .inputs
            .iter()
            .filter_map(|input| match input {
                FnArg::Typed(input) => Some(Parameter::from_input(input, diagnostics)),
                FnArg::Receiver(_) => None,
            })
            .collect();
        fallback::clean(&mut function);
        Self { name, description, parameters, krate: attribute.krate, function }
    }

    /// It returns a `&str`.
    pub(crate) fn returns_text(&self) -> bool {
        matches!(&self.function.sig.output, ReturnType::Type(_, ty) if is_text(ty))
    }

    /// The type that the function returns, `()` at the name if none is written.
    pub(crate) fn output_span(&self) -> Span {
        match &self.function.sig.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => self.function.sig.ident.span(),
        }
    }
}

impl Name {
    fn of(ident: &Ident) -> Self {
        Self { text: ident.unraw().to_string(), span: ident.span(), is_explicit: false }
    }

    fn explicit(literal: &syn::LitStr) -> Self {
        Self { text: literal.value(), span: literal.span(), is_explicit: true }
    }
}

impl Parameter {
    fn from_input(input: &PatType, diagnostics: &mut Diagnostics) -> Self {
        let attribute = Self::attribute(&input.attrs, diagnostics);
        let name = match (attribute.name, &*input.pat) {
            (Some(name), _) => Name::explicit(&name),
            (None, Pat::Ident(pattern)) => Name::of(&pattern.ident),
            (None, other) => Name { text: String::new(), span: other.span(), is_explicit: false },
        };
        let description = attribute.description.map(|text| text.value()).or_else(|| docs::text(&input.attrs));
        Self { name, description, required: attribute.required, ty: ParameterType::of(&input.ty) }
    }

    fn attribute(attributes: &[Attribute], diagnostics: &mut Diagnostics) -> ParamAttribute {
        let mut ours = attributes.iter().filter(|one| one.path().is_ident(PARAM));
        let first = ours.next().map(|one| ParamAttribute::from_attribute(one, diagnostics));
        for second in ours {
            diagnostics.error(second, "`#[param]` is given twice; put everything into one");
        }
        first.unwrap_or_default()
    }
}

impl ParameterType {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Reference(TypeReference { elem, lifetime, .. }) => {
                let span = ty.span();
                Self::Borrowed { owned: owned(elem, span), lifetime: lifetime.clone(), span }
            }
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::Group(inner) => Self::of(&inner.elem),
            other => Self::Owned(Box::new(other.clone())),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Owned(ty) => ty.span(),
            Self::Borrowed { span, .. } => *span,
        }
    }
}

/// `&str`, for any lifetime: a result that is copied, as it may borrow from an argument.
pub(crate) fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Reference(TypeReference { mutability: None, elem, .. })
        if matches!(&**elem, Type::Path(path) if path.path.is_ident("str")))
}

/// `String` for `str`, `Vec<T>` for `[T]`, `PathBuf` for `Path`, else the type itself, which need not be `Clone`.
fn owned(borrowed: &Type, span: Span) -> TokenStream {
    match borrowed {
        Type::Path(path) if path.path.is_ident("str") => quote::quote_spanned!(span=> ::std::string::String),
        // By `ToOwned`, as a user may have a `Path` of their own.
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Path") => {
            quote::quote_spanned!(span=> <#borrowed as ::std::borrow::ToOwned>::Owned)
        }
        Type::Slice(slice) => {
            let element = &slice.elem;
            quote::quote_spanned!(span=> ::std::vec::Vec<#element>)
        }
        other => other.to_token_stream(),
    }
}
