-- docker-entrypoint.sh runs this file once with psql, on an empty volume, as the superuser of the
-- image in the database POSTGRES_DB, and stops at the first error. It creates the extension, which
-- needs a superuser, and the roles; apps/memory_api/embedded/superuser.sql restricts other logins.
-- `hansei migrate` does the rest as hansei_owner.

\getenv owner_password HANSEI_OWNER_PASSWORD

create role hansei_owner login createrole password :'owner_password';

create extension vector; -- not a trusted extension
alter database hansei owner to hansei_owner;
revoke all on database hansei from public;

-- hansei_owner creates these roles, so that `hansei migrate` may set their passwords.
set role hansei_owner;
create role hansei_app nologin;
create role hansei_worker nologin;
grant connect on database hansei to hansei_app, hansei_worker;
