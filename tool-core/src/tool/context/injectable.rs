//! The types that `#[inject]` can take from a context.

use std::any::Any;

/// Returns a value of the context for one call to own.
pub fn for_call<T: InjectableByValue>(value: &T) -> T {
    value.for_call()
}

/// A value that the application can pass to tools, with `#[inject]`: of any type that is `Send`, `Sync` and `'static`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be injected",
    label = "must be `Send`, `Sync` and `'static` because calls share it",
    note = "write `Arc` in place of `Rc`, and a `Mutex` or an atomic in place of a `RefCell` or a `Cell`"
)]
pub trait Injectable: Any + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Any + Send + Sync> Injectable for T {}

/// A type that `#[inject]` can take by value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be injected by value",
    label = "must implement `Clone` because each call takes its own; use `&{Self}` to inject a reference"
)]
pub trait InjectableByValue: Injectable {
    /// Returns a value for one call to own.
    fn for_call(&self) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Injectable + Clone> InjectableByValue for T {
    fn for_call(&self) -> Self {
        self.clone()
    }
}
