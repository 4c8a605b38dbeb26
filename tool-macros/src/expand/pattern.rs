//! `call!(…)`.

use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Expr, ExprClosure, ExprLit, ExprRange, ExprUnary, Ident, Lit, LitStr, Pat, Path, RangeLimits, Token,
    Type, UnOp, braced, bracketed, parenthesized, token,
};

use super::tokens::{expand_option, with_span};

/// `($crate) refund { cents: ..=5_000, .. }`
struct CallPattern {
    krate: TokenStream,
    tool: Tool,
    /// `None` for any arguments.
    members: Option<Members>,
    text: String,
}

enum Tool {
    Path(Path),
    /// A literal, or an expression in parentheses.
    Name(TokenStream),
}

/// `cents: ..=5_000, ..`
struct Members {
    members: Vec<Member>,
    is_open: bool,
}

struct Member {
    name: String,
    span: Span,
    pattern: Pattern,
}

/// A pattern with the text that the user wrote.
struct Pattern {
    text: String,
    span: Span,
    kind: PatternKind,
}

enum PatternKind {
    Any,
    Absent,
    Value(Box<Expr>),
    Range(Box<ExprRange>),
    Closure(Box<ExprClosure>),
    OneOf(Vec<Pattern>),
    Object(Members),
    List { items: Vec<Pattern>, is_open: bool },
}

impl Parse for CallPattern {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let krate;
        parenthesized!(krate in input);
        let krate = krate.parse()?;
        let text = text_of(input.fork().parse()?);
        let tool = Tool::parse(input)?;
        let members = match input.peek(token::Brace) {
            true => {
                let members;
                braced!(members in input);
                Some(members.parse()?)
            }
            false if input.peek(token::Paren) => {
                return Err(input
                    .error("`call!` takes arguments by name; write `call!(refund { cents: 5_000, .. })`"));
            }
            false => None,
        };
        if !input.is_empty() {
            return Err(input.error("`call!` takes one pattern; write `call!(refund { cents: 5_000, .. })`"));
        }
        Ok(Self { krate, tool, members, text })
    }
}

impl Tool {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self::Name(input.parse::<LitStr>()?.into_token_stream()));
        }
        if input.peek(token::Paren) {
            let name;
            parenthesized!(name in input);
            return Ok(Self::Name(name.parse::<Expr>()?.into_token_stream()));
        }
        let path = input.call(Path::parse_mod_style).map_err(|error| {
            let message = format!(
                "{error}; `call!` begins with the path of a `#[tool]` function, or with the name of a tool as text: `call!(\"refund\" {{ .. }})`"
            );
            syn::Error::new(error.span(), message)
        })?;
        let mut segments = path.segments.iter().rev();
        if let (Some(method), Some(ty)) = (segments.next(), segments.next())
            && ty.ident.to_string().starts_with(char::is_uppercase)
        {
            let message = format!(
                "`{}::{method}` is a method, whose parameters are not known here; write the name of its tool as text: `call!(\"{method}\" {{ .. }})`",
                ty.ident,
                method = method.ident
            );
            return Err(syn::Error::new(path.span(), message));
        }
        Ok(Self::Path(path))
    }
}

impl Parse for Members {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut members, mut is_open) = (Vec::<Member>::new(), false);
        while !input.is_empty() {
            if input.peek(Token![..]) && !input.peek(Token![..=]) {
                input.parse::<Token![..]>()?;
                is_open = true;
                if !input.is_empty() {
                    return Err(input.error("`..` stands for all other members; write it at the end"));
                }
                break;
            }
            let member: Member = input.parse()?;
            if members.iter().any(|other| other.name == member.name) {
                let message = format!("`{}` is given twice; join the patterns by `|`", member.name);
                return Err(syn::Error::new(member.span, message));
            }
            members.push(member);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self { members, is_open })
    }
}

impl Parse for Member {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            let name: LitStr = input.parse()?;
            input.parse::<Token![:]>()?;
            return Ok(Self { name: name.value(), span: name.span(), pattern: input.parse()? });
        }
        let ident = input.call(Ident::parse_any)?;
        let (name, span) = (ident.unraw().to_string(), ident.span());
        if input.peek(Token![:]) {
            input.parse::<Token![:]>()?;
            return Ok(Self { name, span, pattern: input.parse()? });
        }
        // A variable of this name, as in the value of a struct.
        let value = syn::parse2(ident.to_token_stream())?;
        let pattern = Pattern { text: name.clone(), span, kind: PatternKind::Value(Box::new(value)) };
        Ok(Self { name, span, pattern })
    }
}

impl Parse for Pattern {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let first: Self = Self::parse_one(input)?;
        if !input.peek(Token![|]) {
            return Ok(first);
        }
        let (span, mut patterns) = (first.span, vec![first]);
        while input.peek(Token![|]) {
            input.parse::<Token![|]>()?;
            patterns.push(Self::parse_one(input)?);
        }
        let texts: Vec<_> = patterns.iter().map(|pattern| &*pattern.text).collect();
        Ok(Self { text: texts.join(" | "), span, kind: PatternKind::OneOf(patterns) })
    }
}

impl Pattern {
    /// Parses a pattern without alternatives.
    fn parse_one(input: ParseStream<'_>) -> syn::Result<Self> {
        let (span, before) = (input.span(), rest_of(input)?);
        let kind = PatternKind::parse(input)?;
        let length = before.len() - rest_of(input)?.len();
        let text = text_of(before.into_iter().take(length).collect());
        Ok(Self { text, span, kind })
    }

    /// Returns what kind of value the pattern is written for.
    fn written(&self) -> &'static str {
        match &self.kind {
            PatternKind::Value(value) => written_of(value),
            PatternKind::Range(range) => match (&range.start, &range.end) {
                (Some(bound), _) | (None, Some(bound)) => written_of(bound),
                (None, None) => ANY,
            },
            PatternKind::Object(_) => "Object",
            PatternKind::List { .. } => "List",
            PatternKind::Any | PatternKind::Absent | PatternKind::Closure(_) | PatternKind::OneOf(_) => ANY,
        }
    }

    /// Returns the patterns that this one joins by `|`, or only itself.
    fn alternatives(&self) -> &[Self] {
        match &self.kind {
            PatternKind::OneOf(patterns) => patterns,
            _ => std::slice::from_ref(self),
        }
    }
}

/// Any kind of value.
const ANY: &str = "Other";

/// Returns the kind of value that a literal is.
fn written_of(value: &Expr) -> &'static str {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => match lit {
            Lit::Bool(_) => "Bool",
            Lit::Int(_) => "Integer",
            Lit::Float(_) => "Number",
            Lit::Str(_) | Lit::Char(_) => "Text",
            _ => ANY,
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => written_of(expr),
        _ => ANY,
    }
}

/// Returns the tokens as they are usually written: `..500`, and not `.. 500`.
fn text_of(tokens: TokenStream) -> String {
    // A long text has line breaks.
    let (text, mut tidy) = (tokens.to_string(), String::new());
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    for part in text.split_inclusive(' ') {
        let is_bound = tidy.ends_with(".. ") || tidy.ends_with("..= ");
        if is_bound && !part.starts_with(['}', ']', ',', '|']) {
            tidy.pop();
        }
        tidy.push_str(part);
    }
    tidy
}

/// Returns the tokens that are not parsed yet.
fn rest_of(input: ParseStream<'_>) -> syn::Result<Vec<TokenTree>> {
    Ok(input.fork().parse::<TokenStream>()?.into_iter().collect())
}

impl PatternKind {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Token![_]) {
            input.parse::<Token![_]>()?;
            return Ok(Self::Any);
        }
        if input.peek(token::Brace) {
            let members;
            braced!(members in input);
            return Ok(Self::Object(members.parse()?));
        }
        if input.peek(token::Bracket) {
            let items;
            bracketed!(items in input);
            return Self::parse_list(&items);
        }
        if input.peek(Token![|]) || input.peek(Token![move]) {
            return Ok(Self::Closure(input.parse()?));
        }
        match parse_value(input)? {
            Expr::Range(range) if range.start.is_none() && range.end.is_none() => {
                Err(syn::Error::new(range.span(), "`..` is a range without bounds; write `_` for any value"))
            }
            Expr::Range(range) => Ok(Self::Range(Box::new(range))),
            Expr::Path(path) if path.path.is_ident("None") => Ok(Self::Absent),
            Expr::Paren(inner) => match *inner.expr {
                Expr::Closure(closure) => Ok(Self::Closure(Box::new(closure))),
                value => Ok(Self::Value(Box::new(value))),
            },
            value => Ok(Self::Value(Box::new(value))),
        }
    }

    fn parse_list(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut items, mut is_open) = (Vec::new(), false);
        while !input.is_empty() {
            let ahead = input.fork();
            if ahead.parse::<Token![..]>().is_ok() && (ahead.is_empty() || ahead.peek(Token![,])) {
                input.parse::<Token![..]>()?;
                is_open = true;
                if !input.is_empty() {
                    return Err(input.error("`..` stands for all further items; write it at the end"));
                }
                break;
            }
            items.push(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self::List { items, is_open })
    }
}

/// Parses an expression up to a comma or a `|`.
fn parse_value(input: ParseStream<'_>) -> syn::Result<Expr> {
    let mut value = TokenStream::new();
    let mut is_or = false;
    while !input.is_empty() && !input.peek(Token![,]) {
        let begins_or = input.peek(Token![||]);
        if input.peek(Token![|]) && !begins_or && !is_or {
            break;
        }
        // The second token of `||` is no alternative.
        is_or = begins_or;
        value.extend([input.parse::<TokenTree>()?]);
    }
    if value.is_empty() {
        return Err(input.error("a pattern is missing: a value, a range, `_`, a closure, `{ .. }` or `[..]`"));
    }
    syn::parse2(value)
}

/// Expands `call!(refund { cents: ..=5_000, .. })` to
///
/// ```ignore
/// {
///     const TOOL: private::Signature = <refund as private::StaticTool>::SIGNATURE;
///     const _: () = private::refuse_unknown(&TOOL, "cents");
///     const _: () = private::refuse_kind(&TOOL, "cents", private::ParameterKind::Integer);
///     private::call_pattern(
///         private::name_of(&TOOL),
///         "refund { cents: ..=5_000, .. }",
///         Some(private::Members::new(private::list([("cents", private::ArgumentPattern::numbers("..=5_000", …))]), true)),
///     )
/// }
/// ```
///
/// Each check has the span of what it checks.
pub(crate) fn expand_pattern(pattern: TokenStream) -> TokenStream {
    let CallPattern { krate, tool, members, text } = match CallPattern::parse.parse2(pattern) {
        Ok(pattern) => pattern,
        Err(error) => return error.into_compile_error(),
    };
    let private = quote!(#krate::__private);
    let (name, checks) = match &tool {
        Tool::Path(path) => {
            (quote!(#private::name_of(&__TOOL)), Some(expand_checks(path, members.as_ref(), &private)))
        }
        Tool::Name(name) => (name.clone(), None),
    };
    let members = expand_option(members.as_ref().map(|members| expand_members(members, &private)));
    quote! {
        {
            #checks
            #private::call_pattern(#name, #text, #members)
        }
    }
}

fn expand_checks(path: &Path, members: Option<&Members>, private: &TokenStream) -> TokenStream {
    // One constant, so that rustc says only once of a path that it is no tool.
    let mut checks = quote_spanned! {path.span()=>
        const __TOOL: #private::Signature = <#path as #private::StaticTool>::SIGNATURE;
    };
    let Some(members) = members else { return checks };
    for member in &members.members {
        let name = &member.name;
        let check = quote!(const _: () = #private::refuse_unknown(&__TOOL, #name););
        checks.extend(with_span(member.span, check));
        for pattern in member.pattern.alternatives() {
            let written = pattern.written();
            if written != ANY {
                let written = Ident::new(written, Span::call_site());
                let kind = quote!(#private::ParameterKind::#written);
                let check = quote!(const _: () = #private::refuse_kind(&__TOOL, #name, #kind););
                checks.extend(with_span(pattern.span, check));
            }
        }
    }
    if !members.is_open {
        let names = members.members.iter().map(|member| &member.name);
        let check = quote!(const _: () = #private::refuse_missing(&__TOOL, &[#(#names),*]););
        checks.extend(with_span(path.span(), check));
    }
    checks
}

fn expand_members(members: &Members, private: &TokenStream) -> TokenStream {
    let is_open = members.is_open;
    let members = members.members.iter().map(|Member { name, pattern, .. }| {
        let pattern = expand_argument(pattern, private);
        quote!((#name, #pattern))
    });
    quote!(#private::Members::new(#private::list([#(#members),*]), #is_open))
}

fn expand_argument(pattern: &Pattern, private: &TokenStream) -> TokenStream {
    let Pattern { text, span, kind } = pattern;
    let list = |items: &[Pattern]| {
        let items = items.iter().map(|item| expand_argument(item, private));
        quote!(#private::list([#(#items),*]))
    };
    match kind {
        PatternKind::Any => quote!(#private::ArgumentPattern::any()),
        PatternKind::Absent => quote!(#private::ArgumentPattern::absent()),
        PatternKind::Value(value) => {
            let value = integer(value).unwrap_or_else(|| value.to_token_stream());
            quote_spanned!(*span=> #private::ArgumentPattern::equal(#text, &(#value)))
        }
        PatternKind::Range(range) => expand_range(range, text, *span, private),
        PatternKind::Closure(closure) => expand_closure(closure, text, *span, private),
        PatternKind::OneOf(patterns) => {
            let patterns = list(patterns);
            quote!(#private::ArgumentPattern::one_of(#text, #patterns))
        }
        PatternKind::Object(members) => {
            let members = expand_members(members, private);
            quote!(#private::ArgumentPattern::object(#text, #members))
        }
        PatternKind::List { items, is_open } => {
            let items = list(items);
            quote!(#private::ArgumentPattern::list(#text, #items, #is_open))
        }
    }
}

/// Numbers that are literals are compared with any number, and other bounds with values of their type.
fn expand_range(range: &ExprRange, text: &str, span: Span, private: &TokenStream) -> TokenStream {
    let is_number = |bound: &Expr| matches!(written_of(bound), "Integer" | "Number");
    let bounds = [&range.start, &range.end];
    if !bounds.iter().all(|bound| bound.as_deref().is_none_or(is_number)) {
        // An argument is read as an owned value.
        let [start, end] = bounds.map(|bound| match bound.as_deref() {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Some(quote!(#private::text(#text))),
            bound => bound.map(ToTokens::to_token_stream),
        });
        let limits = &range.limits;
        return quote_spanned!(span=> #private::ArgumentPattern::within(#text, #start #limits #end));
    }
    let [lowest, highest] = bounds.map(|bound| {
        expand_option(bound.as_deref().map(|bound| match integer(bound) {
            Some(integer) => quote!(#private::Bound::Integer(#integer)),
            None => quote!(#private::Bound::Number(#bound)),
        }))
    });
    let is_open = matches!(range.limits, RangeLimits::HalfOpen(_)) && range.end.is_some();
    quote_spanned!(span=> #private::ArgumentPattern::numbers(#text, #lowest, #highest, #is_open))
}

/// Returns an integer without a suffix as the largest type, so that it has one.
fn integer(value: &Expr) -> Option<TokenStream> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) => {
            let mut literal = Literal::i128_suffixed(integer.base10_parse().ok()?);
            literal.set_span(integer.span());
            Some(literal.to_token_stream())
        }
        Expr::Unary(ExprUnary { op: UnOp::Neg(minus), expr, .. }) => {
            let integer = integer(expr)?;
            Some(quote!(#minus #integer))
        }
        _ => None,
    }
}

/// The type of the parameter decides how the argument is read.
fn expand_closure(closure: &ExprClosure, text: &str, span: Span, private: &TokenStream) -> TokenStream {
    let ty = match closure.inputs.first() {
        Some(Pat::Type(input)) if closure.inputs.len() == 1 => &*input.ty,
        _ => {
            let message = "a closure of `call!` takes one argument, whose type it names: `|id: &str| id.starts_with('A')`";
            return syn::Error::new(closure.span(), message).into_compile_error();
        }
    };
    match ty {
        Type::Reference(reference) if is_text(&reference.elem) => {
            quote_spanned!(span=> #private::ArgumentPattern::that_text(#text, #closure))
        }
        Type::Reference(reference) if matches!(&*reference.elem, Type::Slice(_)) => {
            quote_spanned!(span=> #private::ArgumentPattern::that_list(#text, #closure))
        }
        Type::Reference(reference) => {
            let ty = &reference.elem;
            quote_spanned!(span=> #private::ArgumentPattern::that_ref::<#ty>(#text, #closure))
        }
        ty => quote_spanned!(span=> #private::ArgumentPattern::that::<#ty>(#text, #closure)),
    }
}

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("str"))
}
