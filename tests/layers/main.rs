//! The boundary around agents: each entrance × each rule, and every order of what layers decide.

mod entrances;
mod matrix;
<<<<<<< HEAD
mod ready;
=======
mod mistakes;
mod orders;
>>>>>>> layers
mod rules;
