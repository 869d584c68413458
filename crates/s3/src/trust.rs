//! Trust: how a store proves over TLS that it is the one that was meant, and what is told when it cannot.
//!
//! How: rustls checks the certificate's chain, its time and the name it was made out to. Who may vouch for it: the machine's own authorities, and those
//! of a file ([`Authorities`]). What it refuses is found in an error's causes ([`doubt`]), whichever way to the store had it.
//!
//! Rejected: an option to check less. A file with the store's own authority does as well, and cannot be forgotten in production.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

/// Certificates of authorities that may vouch for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

/// Why nobody is trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file is not there, or no PEM.
    #[error("{path} cannot be read as PEM: {cause}")]
    File {
        /// Which.
        path: String,
        /// Why.
        cause: rustls::pki_types::pem::Error,
    },
    /// It has other things in it, or nothing.
    #[error("{path} has no certificates in it")]
    Empty {
        /// Which.
        path: String,
    },
    /// One of its certificates is none.
    #[error("certificate {number} in {path} is none: {cause}")]
    Certificate {
        /// Which file.
        path: String,
        /// From 1.
        number: usize,
        /// Why.
        cause: rustls::Error,
    },
    /// The machine has none, and no file was given.
    #[error("this machine trusts no authorities{0}; install ca-certificates, or set s3.backend_ca")]
    Nobody(String),
    /// The library refuses its own settings.
    #[error("TLS cannot be set up: {0}; report this")]
    Setup(rustls::Error),
}

impl Authorities {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    /// When it cannot be read, or one of them is none.
    pub fn read(path: &Path) -> Result<Self, TrustError> {
        let shown = || path.display().to_string();
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let certificates: Vec<CertificateDer<'static>> =
            read.map_err(|cause| TrustError::File { path: shown(), cause })?;
        for (at, certificate) in certificates.iter().enumerate() {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|cause| TrustError::Certificate { path: shown(), number: at + 1, cause })?;
        }
        if certificates.is_empty() { Err(TrustError::Empty { path: shown() }) } else { Ok(Self(certificates)) }
    }
}

/// How connections to a store are made, where the machine's authorities and these are believed.
pub(crate) fn client(more: Option<&Authorities>) -> Result<Arc<ClientConfig>, TrustError> {
    let own = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(own.certs);
    roots.add_parsable_certificates(more.into_iter().flat_map(|it| it.0.iter().cloned()));
    if roots.is_empty() {
        let why: String = own.errors.iter().map(|error| format!(" ({error})")).collect();
        return Err(TrustError::Nobody(why));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.map_err(TrustError::Setup)?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Why a store is not believed to be the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nobody who is trusted vouches for it.
    Authority,
    /// It is made out to another name.
    Name,
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    NotYet,
    /// It is wrong otherwise.
    Certificate,
    /// The two did not agree on how to speak.
    Handshake,
}

impl Doubt {
    /// All of them.
    const ALL: [Self; 6] =
        [Self::Authority, Self::Name, Self::Expired, Self::NotYet, Self::Certificate, Self::Handshake];

    /// What is wrong, and what to do.
    #[must_use]
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Authority => (
                "nobody who is trusted here vouches for its certificate",
                "name its authority's PEM file in s3.backend_ca",
            ),
            Self::Name => ("its certificate is for another host", "write s3.backend with a host of the certificate"),
            Self::Expired => ("its certificate has expired", "renew it, and check this machine's clock"),
            Self::NotYet => ("its certificate is not valid yet", "check this machine's clock and the store's"),
            Self::Certificate => (
                "its certificate is refused",
                "look at it with openssl s_client; an authority's own (CA:TRUE) is not one of a store",
            ),
            Self::Handshake => ("TLS could not be agreed on", "check that its port speaks TLS 1.2 or 1.3"),
        }
    }

    /// A number for each, from 1.
    pub(crate) fn number(self) -> usize {
        Self::ALL.iter().position(|it| *it == self).expect("all are there") + 1
    }

    fn of(error: &rustls::Error) -> Self {
        use CertificateError as Bad;
        let rustls::Error::InvalidCertificate(why) = error else { return Self::Handshake };
        match why {
            Bad::UnknownIssuer | Bad::BadSignature => Self::Authority,
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Self::Name,
            Bad::Expired | Bad::ExpiredContext { .. } => Self::Expired,
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => Self::NotYet,
            _ => Self::Certificate,
        }
    }
}

/// TLS's own reason among an error's causes.
pub(crate) fn doubt(error: &(dyn Error + 'static)) -> Option<Doubt> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(Doubt::of(tls));
        }
        // What an I/O error wraps is not its source.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|it| it as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}
