//! The parameters of a tool: those that the model fills and those that the application fills.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{GenericArgument, Lifetime, Meta, Pat, PatType, PathArguments, Type, TypeReference};

use crate::attributes::ParamAttribute;
use crate::diagnostics::Diagnostics;
use crate::docs;
use crate::name::Name;
use crate::names::{INJECT, PARAM};

/// A parameter of the function.
pub(crate) enum Parameter {
    Model(Box<ModelParameter>),
    Injected(Box<InjectedParameter>),
}

/// A parameter that the model fills.
pub(crate) struct ModelParameter {
    pub(crate) name: Name,
    /// The options, with the doc comment as the description if there is no other.
    pub(crate) options: ParamAttribute,
    pub(crate) ty: ParameterType,
}

/// The type that the argument is deserialized as, and how it is passed to the function.
pub(crate) enum ParameterType {
    Owned(Box<Type>),
    /// `&str`, `&[T]` or `&T`: the function borrows a value of the owned type.
    Borrowed {
        owned: TokenStream,
        lifetime: Option<Lifetime>,
        span: Span,
    },
}

/// A parameter with `#[inject]`: a value of the run's context.
pub(crate) struct InjectedParameter {
    /// The type of the value, without a reference or `Option` around it.
    pub(crate) ty: Type,
    /// `true` for a `&T`.
    pub(crate) is_reference: bool,
    /// `true` for an `Option`.
    pub(crate) is_optional: bool,
    pub(crate) span: Span,
}

impl Parameter {
    pub(crate) fn parse(input: &PatType, diagnostics: &mut Diagnostics) -> Self {
        let Some(inject) = input.attrs.iter().find(|attribute| attribute.path().is_ident(INJECT)) else {
            return Self::Model(Box::new(ModelParameter::parse(input, diagnostics)));
        };
        if !matches!(inject.meta, Meta::Path(_)) {
            let message = "`#[inject]` takes no options because values are found by type; write `#[inject]`";
            diagnostics.error(inject, message);
        }
        for other in &input.attrs {
            if other.path().is_ident(PARAM) {
                let message = "a parameter comes from the model or from the application, not from both; \
                     remove `#[param]` or `#[inject]`";
                diagnostics.error(other, message);
            } else if other.path().is_ident(INJECT) && !std::ptr::eq(other, inject) {
                diagnostics.error(other, "duplicate `#[inject]`; remove one of the two");
            }
        }
        Self::Injected(Box::new(InjectedParameter::from_type(&input.ty)))
    }
}

impl ModelParameter {
    fn parse(input: &PatType, diagnostics: &mut Diagnostics) -> Self {
        let mut params = input.attrs.iter().filter(|attribute| attribute.path().is_ident(PARAM));
        let first = params.next().map(|attribute| ParamAttribute::parse(attribute, diagnostics));
        for second in params {
            diagnostics.error(second, "duplicate `#[param]`; merge the two");
        }
        let mut options = first.unwrap_or_default();
        options.description = options.description.or_else(|| docs::literal(&input.attrs));
        let name = match (&options.name, &*input.pat) {
            (Some(name), _) => Name::from_literal(name),
            (None, Pat::Ident(pattern)) => Name::from_ident(&pattern.ident),
            (None, other) => {
                Name { text: String::new(), span: other.span(), constant: None, is_explicit: false }
            }
        };
        Self { name, options, ty: ParameterType::from_type(&input.ty) }
    }
}

impl ParameterType {
    fn from_type(ty: &Type) -> Self {
        match ty {
            Type::Reference(TypeReference { elem, lifetime, .. }) => {
                let span = ty.span();
                Self::Borrowed { owned: owned_type(elem, span), lifetime: lifetime.clone(), span }
            }
            Type::Paren(inner) => Self::from_type(&inner.elem),
            Type::Group(inner) => Self::from_type(&inner.elem),
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

impl ToTokens for ParameterType {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Owned(ty) => ty.to_tokens(tokens),
            Self::Borrowed { owned, .. } => owned.to_tokens(tokens),
        }
    }
}

impl InjectedParameter {
    pub(crate) fn from_type(ty: &Type) -> Self {
        let span = ty.span();
        match ty {
            Type::Reference(reference) => {
                Self { ty: (*reference.elem).clone(), is_reference: true, is_optional: false, span }
            }
            Type::Paren(inner) => Self::from_type(&inner.elem),
            Type::Group(inner) => Self::from_type(&inner.elem),
            other => match option_argument(other) {
                Some(inner) => Self { is_optional: true, span, ..Self::from_type(inner) },
                None => Self { ty: other.clone(), is_reference: false, is_optional: false, span },
            },
        }
    }
}

/// Returns the `T` of an `Option<T>`.
pub(crate) fn option_argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}

/// Returns `true` for a `&str` with any lifetime. Such a return value is copied because it may borrow from an argument.
pub(crate) fn is_str_reference(ty: &Type) -> bool {
    matches!(ty, Type::Reference(TypeReference { mutability: None, elem, .. })
        if matches!(&**elem, Type::Path(path) if path.path.is_ident("str")))
}

/// Returns `String` for `str`, `Vec<T>` for `[T]`, `PathBuf` for `Path`, and any other type itself, which need not be
/// `Clone`.
fn owned_type(borrowed: &Type, span: Span) -> TokenStream {
    match borrowed {
        Type::Path(path) if path.path.is_ident("str") => quote::quote_spanned!(span=> ::std::string::String),
        // Goes through `ToOwned` because a user may have a type `Path` of their own.
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
