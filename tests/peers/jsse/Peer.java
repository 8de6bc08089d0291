// Java's own TLS (JSSE), held to TLS 1.2, as a client for the tests. For each line of its input it connects,
// sends the line, reads one back, and prints that with the length of the server's key. Arguments: port,
// chain, private key (PKCS#8) and roots, in PEM files; with a fifth one, it reads a greeting before it sends.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.interfaces.ECPublicKey;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class Peer {
    public static void main(String[] args) throws Exception {
        SSLContext context = SSLContext.getInstance("TLSv1.2");
        KeyManagerFactory own = KeyManagerFactory.getInstance("PKIX");
        KeyStore identity = store();
        Certificate[] chain = certificates(args[1]).toArray(new Certificate[0]);
        identity.setKeyEntry("own", key(args[2]), new char[0], chain);
        own.init(identity, new char[0]);
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        KeyStore roots = store();
        for (Certificate root : certificates(args[3])) {
            roots.setCertificateEntry("root" + roots.size(), root);
        }
        trust.init(roots);
        context.init(own.getKeyManagers(), trust.getTrustManagers(), null);

        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int port = Integer.parseInt(args[0]);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Socket tcp = new Socket("127.0.0.1", port);
            try (SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(tcp, "localhost", port, true)) {
                SSLParameters parameters = tls.getSSLParameters();
                parameters.setProtocols(new String[] {"TLSv1.2"});
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
                tls.setSSLParameters(parameters);
                tls.startHandshake();
                var input = new BufferedReader(new InputStreamReader(tls.getInputStream(), StandardCharsets.UTF_8));
                if (args.length > 4) {
                    input.readLine();
                }
                tls.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
                String answer = input.readLine();
                ECPublicKey server = (ECPublicKey) tls.getSession().getPeerCertificates()[0].getPublicKey();
                System.out.println(answer + " " + server.getParams().getOrder().bitLength());
            }
        }
    }

    private static KeyStore store() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(String path) throws Exception {
        byte[] pem = Files.readAllBytes(Path.of(path));
        return CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
    }

    private static PrivateKey key(String path) throws Exception {
        String base64 = Files.readString(Path.of(path)).replaceAll("-----[^-]*-----", "").replaceAll("\\s", "");
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(base64)));
    }
}
