-- The first memory of a scope that says exactly this, for those of the texts that one says; the lists are parallel.
select distinct on (m.scope, m.fingerprint) m.scope, m.fingerprint, m.id
from unnest(cast(:scopes as int[]), cast(:fingerprints as bytea[])) x(scope, fingerprint)
join memories m using (scope, fingerprint)
where m.tenant_id = :tenant and m.status <> 'deleted'
order by m.scope, m.fingerprint, m.n
