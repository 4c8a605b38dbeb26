//! Exclusive use of standard input and output for the protocol.

use tokio::io::{AsyncRead, AsyncWrite};

use super::ServerError;

/// Takes over standard input and output. From then on, output of the program and its child processes goes to standard error
/// and they read empty input: anything else between two messages would break the session.
#[cfg(unix)]
pub(super) fn take_streams()
-> Result<(impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static), ServerError> {
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::fd::AsFd;

    let take = || -> io::Result<(File, File)> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let mut stdout = io::stdout().lock();
        stdout.flush()?;
        let output = stdout.as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Ok((input.into(), output.into()))
    };
    let (input, output) = take().map_err(ServerError::stdio)?;
    Ok((tokio::fs::File::from_std(input), tokio::fs::File::from_std(output)))
}

/// Returns standard input and output.
#[cfg(not(unix))]
pub(super) fn take_streams()
-> Result<(impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static), ServerError> {
    Ok((tokio::io::stdin(), tokio::io::stdout()))
}
