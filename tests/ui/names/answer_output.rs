#![deny(deprecated)]

use tool_core::Answer;

fn print(answer: &Answer) {
    println!("{}", answer.output());
}

fn main() {}
