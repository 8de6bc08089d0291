//! The faults of settings as errors of a command.

use dunlin_setup::place::{Fault, Faults};

use crate::error::{Error, warn_once};

/// A fault of an option, or of a file that the option names.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let Fault { place, file, what, advice } = fault;
        match (place, file) {
            (_, Some(file)) => Self::failed(file.display(), what, advice),
            (Some(place), None) => Self::usage(place, what, advice),
            (None, None) => Self::failed("configuration", what, advice),
        }
    }
}

/// The result of `read`, which adds warnings. Prints those that this process has not printed before.
///
/// # Errors
/// The fault.
pub fn warned<T>(read: impl FnOnce(&mut Vec<Fault>) -> Result<T, Fault>) -> Result<T, Error> {
    let mut warnings = vec![];
    let result = read(&mut warnings);
    warnings.into_iter().for_each(|warning| warn_once(Error::from(warning).to_string()));
    Ok(result?)
}

/// The result of `read`, which adds faults.
///
/// # Errors
/// The first fault.
pub fn checked<T>(read: impl FnOnce(&mut Vec<Fault>) -> T) -> Result<T, Error> {
    let mut faults = vec![];
    let result = read(&mut faults);
    faults.into_iter().next().map_or(Ok(result), |fault| Err(fault.into()))
}

/// Prints all faults of a configuration but the last, and returns the last, which ends the command.
pub fn told(faults: &Faults) -> Error {
    let error = |fault: &Fault| {
        let place = fault.place.as_ref().map_or_else(|| "configuration".to_owned(), ToString::to_string);
        Error::failed(place, fault.description(), &fault.advice)
    };
    let mut errors: Vec<_> = faults.iter().map(error).collect();
    let last = errors.pop();
    errors.iter().for_each(Error::report);
    last.unwrap_or_else(|| Error::failed("configuration", "not valid", "check it"))
}
