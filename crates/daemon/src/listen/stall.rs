//! A stream that fails when its client takes no data for too long. Without this, a client that sends a request and does
//! not read would keep a response in memory forever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream with a limit on pauses in writing. Reading has other limits, which depend on what is expected.
pub(crate) struct Stalling<S> {
    stream: S,
    pause_max: Duration,
    /// Runs while a write waits.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub(crate) fn new(stream: S, pause_max: Duration) -> Self {
        Self { stream, pause_max, pause: None }
    }

    /// The result of a write, or a timeout.
    fn limited<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.pause = None;
            return written;
        }
        let pause_max = self.pause_max;
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(pause_max)));
        ready!(pause.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no data")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.limited(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_kept_and_one_that_stops_is_not() {
        let (near, mut far) = duplex(16);
        let mut near = Stalling::new(near, Duration::from_secs(60));
        let reading = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..100 {
                sleep(Duration::from_secs(50)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            far
        });
        near.write_all(&[7; 116]).await.unwrap();
        let _far = reading.await.unwrap();
        let stalled = near.write_all(&[7; 17]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
    }
}
