//! The faults of a configuration of the gateway or the tunnel as errors of a command.

use dunlin_gateway::{Fault, Faults};

use crate::error::Error;

/// Prints all faults but the last, and returns the last, which ends the command.
pub fn told(faults: &Faults) -> Error {
    told_at(faults, |fault| {
        fault.place.as_ref().map_or_else(|| "configuration".to_owned(), ToString::to_string)
    })
}

/// As [`told`], with `place` as the name of a fault's place.
pub fn told_at(faults: &Faults, place: impl Fn(&Fault) -> String) -> Error {
    let error = |fault: &Fault| Error::failed(place(fault), &fault.what, &fault.advice);
    let mut errors: Vec<_> = faults.iter().map(error).collect();
    let last = errors.pop();
    errors.iter().for_each(Error::report);
    last.unwrap_or_else(|| Error::failed("configuration", "not valid", "check it"))
}
