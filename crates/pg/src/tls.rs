//! Encryption of the connection, with rustls and ring.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// How the server has to prove itself; the names are those of libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Plain text: for unix sockets and the same machine.
    #[default]
    Disable,
    /// Encrypted. Without a root certificate this keeps listeners out, but not an impostor; with
    /// one the chain is verified, the name is not (libpq's `verify-ca`).
    Require,
    /// Encrypted, chain and host name verified. Needs a root certificate.
    VerifyFull,
}

/// Encryption of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    #[serde(default)]
    pub mode: TlsMode,
    /// PEM file of the authorities that are trusted, and no others.
    #[serde(default)]
    pub root_cert: Option<PathBuf>,
}

impl Tls {
    /// Reads the root certificate and makes what opens encrypted connections. It is made for
    /// `Disable` too, and then never asked.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match (self.mode, self.roots()?) {
            (TlsMode::VerifyFull, None) => {
                return Err(Error::Settings {
                    what: "tls = verify-full needs the certificate that vouches for the server",
                    fix: "set tls_root_cert to its PEM file (for a public authority: the system's \
                          bundle, such as /etc/ssl/certs/ca-certificates.crt)",
                    source: None,
                });
            }
            (TlsMode::VerifyFull, Some(roots)) => web_pki(roots, &provider)?,
            (TlsMode::Disable | TlsMode::Require, Some(roots)) => Arc::new(ChainOnly(web_pki(roots, &provider)?)),
            (TlsMode::Disable | TlsMode::Require, None) => {
                Arc::new(Unverified(provider.signature_verification_algorithms))
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<Option<RootCertStore>, Error> {
        let Some(path) = &self.root_cert else {
            return Ok(None);
        };
        let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Settings {
            what: "the TLS root certificate cannot be used",
            fix: "set tls_root_cert to a readable PEM file with at least one CERTIFICATE",
            source: Some(source),
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unreadable(Box::new(e)))? {
            let certificate = certificate.map_err(|e| unreadable(Box::new(e)))?;
            roots.add(certificate).map_err(|e| unreadable(Box::new(e)))?;
        }
        if roots.is_empty() {
            return Err(unreadable("the file holds no certificate".into()));
        }
        Ok(Some(roots))
    }
}

fn web_pki(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(unusable)
}

fn unusable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Settings {
        what: "TLS cannot be set up",
        fix: "check the certificate that tls_root_cert names, or set tls to disable where the network \
              is trusted",
        source: Some(source.into()),
    }
}

/// The chain must lead to a trusted root; what name the certificate carries does not matter.
#[derive(Debug)]
struct ChainOnly(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is compared last, after the chain has been found good.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Any certificate will do. The handshake's signatures are still checked: the server must hold the
/// key of the certificate it shows.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
