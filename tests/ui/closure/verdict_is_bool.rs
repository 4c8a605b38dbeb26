use tool_core::layer::guard;

fn main() {
    guard::call(|call| call.name != "pay");
}
