-- Runs once, on an empty volume, as the image's superuser in the database of POSTGRES_DB (psql of
-- docker-entrypoint.sh, which stops at the first error). Makes what only a superuser may make, and
-- the owner that `hansei migrate` runs as; everything else is the migrations' work.

\getenv owner_password HANSEI_OWNER_PASSWORD

create role hansei_owner login createrole password :'owner_password';

create extension vector; -- not a trusted extension
alter database hansei owner to hansei_owner;
revoke all on database hansei from public;

-- Whoever creates a role administers it: `hansei migrate` gives these two their passwords.
set role hansei_owner;
create role hansei_app nologin;
create role hansei_worker nologin;
grant connect on database hansei to hansei_app, hansei_worker;
