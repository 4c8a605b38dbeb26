//! The closure that reads the arguments, calls the function and converts what it returns.
//!
//! Its locals are of the macro's own hygiene, so that a function `text` is not shadowed by the local `text`.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Expr, Ident};

use super::details::expand_default;
use super::own_at;
use crate::input::{Argument, ArgumentType, Injected, Input};
use crate::receiver::Receiver;
use crate::tool_fn::ToolFn;

/// Of a function `|arguments, context| { … }`; of a method `|this, arguments, context| { … }`, where `path`
/// has the type in front: `<Self>::add`.
pub(super) fn expand_call(tool: &ToolFn, path: &TokenStream, private: &TokenStream) -> TokenStream {
    let own = Span::mixed_site();
    let call = Call { tool, path, private };
    let (plain, plain_locals) = call.taken();
    let (takes, locals): (Vec<_>, Vec<_>) = call.others().unzip();
    let pending = call.pending();
    let this = tool.is_method.then(|| match tool.signature.receiver() {
        Some(_) => quote_spanned!(own=> this,),
        None => quote!(_,),
    });
    let context = match tool.injected().next() {
        Some(_) => quote_spanned!(own=> context),
        None => quote!(_),
    };
    // What is taken last sees the mistakes of all before it.
    let (are_right, is_true) = match call.last_sees_all() {
        true => (quote!(), quote!()),
        false => (quote_spanned!(own=> arguments.are_right(),), quote!(true,)),
    };
    quote_spanned! {own=>
        |#this arguments, #context| {
            let taken = #plain;
            #(#takes)*
            let (::core::option::Option::Some(#plain_locals), #(::core::option::Option::Some(#locals),)* #is_true) =
                (taken.whole(), #(#locals,)* #are_right)
            else {
                return ::core::option::Option::None;
            };
            ::core::option::Option::Some(#pending)
        }
    }
}

struct Call<'a> {
    tool: &'a ToolFn,
    path: &'a TokenStream,
    private: &'a TokenStream,
}

impl Call<'_> {
    fn is_blocking(&self) -> bool {
        self.tool.words.blocking.is_some()
    }

    /// Every parameter with its place in the function, and an argument with its place in the table as well.
    fn inputs(&self) -> impl Iterator<Item = (usize, usize, &Input)> {
        let mut index = 0;
        self.tool.inputs.iter().enumerate().map(move |(position, input)| {
            let place = (position, index, input);
            index += usize::from(matches!(input, Input::Argument(_)));
            place
        })
    }

    /// Arguments are all that there is, so the last of them tells whether all are right.
    fn last_sees_all(&self) -> bool {
        let is_plain =
            |input: &Input| matches!(input, Input::Argument(argument) if argument.default.is_none());
        !self.tool.inputs.is_empty() && self.tool.inputs.iter().all(is_plain)
    }

    /// `Taken::nothing().and::<f64>(arguments, 0)` for the arguments without a default, and the pattern for what it holds.
    fn taken(&self) -> (TokenStream, TokenStream) {
        let private = self.private;
        let mut taken = quote!(#private::Taken::nothing());
        let mut pattern = quote!(());
        for (position, index, input) in self.inputs() {
            if let Input::Argument(argument) = input
                && argument.default.is_none()
            {
                let index = Literal::usize_unsuffixed(index);
                let (local, ty) = (local(position), &argument.ty);
                let is_last = position + 1 == self.tool.inputs.len() && self.last_sees_all();
                let and =
                    format_ident!("{}", if is_last { "and_last" } else { "and" }, span = own_at(ty.span()));
                taken = quote_spanned!(own_at(ty.span())=> #taken.#and::<#ty>(arguments, #index));
                pattern = quote!((#pattern, #local));
            }
        }
        (taken, pattern)
    }

    /// `let argument0 = …;` for every other parameter, and its name.
    fn others(&self) -> impl Iterator<Item = (TokenStream, Ident)> {
        self.inputs().filter_map(|(position, index, input)| {
            let local = local(position);
            let take = match input {
                Input::Argument(argument) => {
                    self.take_or(&local, index, argument, argument.default.as_ref()?)
                }
                Input::Injected(injected) => self.inject(&local, injected),
            };
            Some((take, local))
        })
    }

    fn take_or(&self, local: &Ident, index: usize, argument: &Argument, default: &Expr) -> TokenStream {
        let private = self.private;
        let index = Literal::usize_unsuffixed(index);
        let ty = &argument.ty;
        let default = expand_default(argument, default, private);
        quote_spanned! {own_at(ty.span())=>
            let #local = arguments.take_or::<#ty>(#index, #default, |value| #private::Shown(value).__tool_core_json());
        }
    }

    /// What is injected, in an `Option` that is empty if it is not there and must be.
    ///
    /// A blocking function may run on after the call, so it gets a context of its own and looks there.
    fn inject(&self, local: &Ident, injected: &Injected) -> TokenStream {
        let private = self.private;
        let Injected { ty, is_reference, is_optional, span } = injected;
        let own = own_at(*span);
        let found = if *is_optional {
            quote_spanned!(own=> ::core::option::Option::Some(#private::look_up::<#ty>(context)))
        } else {
            quote_spanned!(own=> arguments.inject::<#ty>(context))
        };
        let found = match (is_reference, is_optional) {
            (true, _) if self.is_blocking() => quote_spanned!(own=> #found.map(|_| ())),
            (true, _) => found,
            (false, false) => quote_spanned!(own=> #found.map(|value| #private::for_call::<#ty>(value))),
            (false, true) => {
                quote_spanned!(own=> #found.map(|value| value.map(|value| #private::for_call::<#ty>(value))))
            }
        };
        quote_spanned!(own=> let #local = #found;)
    }

    /// The call, under way.
    fn pending(&self) -> TokenStream {
        let private = self.private;
        let (tool, path) = (self.tool, self.path);
        let given = self.given();
        let is_async = tool.signature.asyncness.is_some();
        let own = own_at(tool.signature.ident.span());
        let convert = self.convert();
        if self.is_blocking() {
            let owned = self.owned_by_the_call();
            let looked_up = self.looked_up();
            return quote_spanned! {own=>
                {
                    #owned
                    #private::blocking(move || {
                        #looked_up
                        let output = #path(#(#given),*);
                        #convert
                    })
                }
            };
        }
        if is_async && !tool.borrows_arguments() {
            quote_spanned!(own=> #private::later(#path(#(#given),*), |output| #convert))
        } else if is_async {
            quote_spanned! {own=>
                #private::Pending::boxed(async move {
                    let output = #path(#(#given),*).await;
                    #convert
                })
            }
        } else {
            quote_spanned! {Span::mixed_site()=>
                {
                    let output = #path(#(#given),*);
                    #private::Pending::ready(#convert)
                }
            }
        }
    }

    /// What the function is given, its receiver first.
    fn given(&self) -> Vec<TokenStream> {
        let receiver = self.receiver().map(|receiver| match receiver {
            Receiver::Reference => quote_spanned!(Span::mixed_site()=> &**this),
            Receiver::Shared => quote_spanned!(Span::mixed_site()=> ::std::sync::Arc::clone(this)),
            Receiver::SharedReference => quote_spanned!(Span::mixed_site()=> this),
        });
        let inputs = self.tool.inputs.iter().enumerate().map(|(position, input)| {
            let local = local(position);
            match input {
                Input::Argument(argument) if matches!(argument.ty, ArgumentType::Borrowed { .. }) => {
                    quote!(&#local)
                }
                _ => quote!(#local),
            }
        });
        receiver.into_iter().chain(inputs).collect()
    }

    fn receiver(&self) -> Option<Receiver> {
        self.tool.signature.receiver().and_then(Receiver::of)
    }

    /// Of what is borrowed from the caller, one for a blocking call to keep.
    fn owned_by_the_call(&self) -> TokenStream {
        let own = Span::mixed_site();
        let this = self.receiver().map(|_| quote_spanned!(own=> let this = ::std::sync::Arc::clone(this);));
        let context = self
            .tool
            .injected()
            .any(|injected| injected.is_reference)
            .then(|| quote_spanned!(own=> let context = ::core::clone::Clone::clone(context);));
        quote!(#this #context)
    }

    /// In a blocking call, what is injected by reference; it was there when the arguments were read.
    fn looked_up(&self) -> TokenStream {
        let private = self.private;
        let own = Span::mixed_site();
        let this = self.receiver().map(|_| quote_spanned!(own=> let this = &this;));
        let values = self.tool.inputs.iter().enumerate().filter_map(|(position, input)| match input {
            Input::Injected(injected) if injected.is_reference => {
                let (local, ty) = (local(position), &injected.ty);
                Some(match injected.is_optional {
                    true => quote_spanned! {own=>
                        let () = #local;
                        let #local = #private::look_up::<#ty>(&context);
                    },
                    false => quote_spanned! {own=>
                        let () = #local;
                        let #local = match #private::look_up::<#ty>(&context) {
                            ::core::option::Option::Some(value) => value,
                            ::core::option::Option::None => return ::core::result::Result::Err(#private::lacks::<#ty>()),
                        };
                    },
                })
            }
            _ => None,
        });
        quote!(#this #(#values)*)
    }

    /// The outcome of `output`, what the function returned.
    fn convert(&self) -> TokenStream {
        let private = self.private;
        let own = own_at(self.tool.output_span());
        if let Some(path) = &self.tool.words.convert {
            return quote_spanned! {own=>
                #private::Returned::of(&output).__tool_core_kind().and_then(output, |output| {
                    let output = #path(output);
                    #private::Returned::of(&output).__tool_core_kind().convert(output)
                })
            };
        }
        let convert =
            quote_spanned!(own=> #private::Returned::of(&output).__tool_core_kind().convert(output));
        // A result that borrows from an argument is copied while the argument is there.
        match self.tool.returns_text() {
            true => quote_spanned!(own=> { let output = ::std::string::String::from(output); #convert }),
            false => convert,
        }
    }
}

fn local(position: usize) -> Ident {
    format_ident!("argument{position}", span = Span::mixed_site())
}
